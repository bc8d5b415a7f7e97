"""Pretraining workers: each runs the plain loop with its rank."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.logs import bound
from jobs.pace import Pace, describe_step
from jobs.progress import duration
from jobs.ray_training import (
    errors_left_in,
    is_first_rank,
    last_state,
    prepare_worker,
    report_state,
    run_workers,
)
from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.loop import Progress, pretrain
from pipeline.model.pretrain.packing import load_sequences
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.preparing import save_finished
from pipeline.model.pretrain.starting import reload
from schemas.home import Home
from schemas.manifest import write_atomically
from schemas.pretraining import PretrainingRun
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRESS_FILE = "progress.json"


def run_pretraining(config: TaskConfig, home: Home, place: PretrainingRun, *, key: str) -> None:
    """Pretrains in `pretrain.workers` processes; leaves the model and `progress.json` in `place`.

    Raises:
        NightmillError, ShardError: see `run_workers`.
    """
    work = {
        "task": config.model_dump(mode="json"),
        "home": str(home.root),
        "run": place.name,
    }
    run_workers(
        _worker, work, config=config.pretrain, folder=place.folder, key=key,
        describe=describe, what=f"pretraining run {place.name}",
    )  # fmt: skip


def describe(told: Mapping[str, Any]) -> str:
    """What the log says of a step, a checkpoint inside an epoch, or an epoch's end."""
    if "in_epoch" in told:
        return describe_step(told)
    if "saved_at" in told:
        return f"a killed run would go on from step {told['saved_at']}"
    numbers = [
        f"{name.replace('_', ' ')} {value:.5g}"
        for name, value in told.items() if name not in ("epoch", "left_s")
    ]  # fmt: skip
    left = [f"at most {duration(told['left_s'])} left"] if told["left_s"] else []
    return f"epoch {told['epoch']}: {', '.join(numbers + left)}"


def _worker(work: dict[str, Any]) -> None:
    prepare_worker("pretrain", threads=work["threads"])
    config = TaskConfig.model_validate(work["task"])
    place = PretrainingRun(Home(Path(work["home"])), config.name, work["run"])
    with bound(task=config.name, run=work["run"]), errors_left_in(place.folder):
        _pretrain(config, place)


def _pretrain(config: TaskConfig, place: PretrainingRun) -> None:
    tokenizer = PieceTokenizer(place.tokenizer)
    lesson = make_lesson(
        reload(str(place.start), config.pretrain), config, tokenizer,
        train=load_sequences(place.train), valid=load_sequences(place.valid),
    )  # fmt: skip
    pace = Pace(place.folder)
    progress = pretrain(
        lesson.objective, lesson.feed, config.pretrain, pad_id=tokenizer.pad_id,
        measure=lesson.measure, resume=last_state(),
        on_checkpoint=partial(_report, place.folder, pace), on_step=pace.on_step,
    )  # fmt: skip
    if is_first_rank():
        save_finished(lesson.objective.model, place)
        told = json.dumps(progress.__dict__).encode()
        write_atomically(place.folder / PROGRESS_FILE, told)


def _report(folder: Path, pace: Pace, progress: Progress, state: dict[str, Any]) -> None:
    told: dict[str, Any] = {"saved_at": progress.step}
    if progress.batch == 0:  # an epoch has ended
        told = progress.history[-1] | {"left_s": pace.left_s()}
        pace.end_epoch()
    report_state(folder, told, state)
