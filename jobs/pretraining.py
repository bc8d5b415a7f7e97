"""Pretraining workers: each runs the plain loop with its rank."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.logs import bound
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
        describe=_describe, what=f"pretraining run {place.name}",
    )  # fmt: skip


def _describe(epoch: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in epoch.items())


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
    progress = pretrain(
        lesson.objective, lesson.feed, config.pretrain, pad_id=tokenizer.pad_id,
        measure=lesson.measure, resume=last_state(),
        on_checkpoint=partial(_report, place.folder),
    )  # fmt: skip
    if is_first_rank():
        save_finished(lesson.objective.model, place)
        told = json.dumps(progress.__dict__).encode()
        write_atomically(place.folder / PROGRESS_FILE, told)


def _report(folder: Path, progress: Progress, state: dict[str, Any]) -> None:
    ended_epoch = progress.batch == 0
    metrics = progress.history[-1] if ended_epoch else {"step": progress.step}
    report_state(folder, metrics, state)
