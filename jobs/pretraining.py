"""Pretraining workers under Ray Train: each runs the plain loop with its rank."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from jobs.logs import configure_logging
from jobs.ray_session import ray_session
from pipeline.engines.host import usable_cpus
from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.loop import Progress, pretrain
from pipeline.model.pretrain.packing import load_sequences
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.preparing import save_finished
from pipeline.model.pretrain.starting import reload
from schemas import errors
from schemas.errors import NightmillError, ShardError
from schemas.home import Home
from schemas.manifest import write_atomically
from schemas.pretraining import PretrainingRun
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.pretrain import PretrainConfig

log = logging.getLogger(__name__)

PROGRESS_FILE = "progress.json"
EPOCHS_FILE = "epochs.jsonl"
_STATE_FILE = "state.pt"
_POLL_S = 0.5


def run_pretraining(config: TaskConfig, home: Home, place: PretrainingRun, *, key: str) -> None:
    """Pretrains in `pretrain.workers` processes; leaves the model and `progress.json` in `place`.

    A worker that dies is started again and goes on from the last checkpoint, as does a run that
    was killed: `key` names it.

    Raises:
        NightmillError: what a worker raised on purpose.
        ShardError: workers died more often than `pretrain.max_failures`.
    """
    settings = config.pretrain
    failure = place.folder / "failure.json"
    failure.unlink(missing_ok=True)
    work = {
        "task": config.model_dump(mode="json"),
        "home": str(home.root),
        "run": place.name,
        "threads": settings.threads_per_worker or max(1, usable_cpus() // settings.workers),
    }
    with ray_session(cpus=settings.workers), _told(place.folder / EPOCHS_FILE):
        try:
            _trainer(work, settings, place, key).fit()
        except Exception as error:
            raise ShardError(
                f"pretraining run {place.name}: workers failed more than "
                f"{settings.max_failures} times ({str(error)[:500]}); run again to go on"
            ) from error
    if failure.exists():
        told = json.loads(failure.read_text())
        raise getattr(errors, told["kind"])(told["message"])


def _trainer(
    work: dict[str, Any], settings: PretrainConfig, place: PretrainingRun, key: str
) -> TorchTrainer:
    return TorchTrainer(
        _worker,
        train_loop_config=work,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=settings.workers, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(
            # The same name and folder take a killed run up where it was.
            name=key,
            storage_path=str(place.folder / "ray"),
            failure_config=FailureConfig(max_failures=settings.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    )


def _worker(work: dict[str, Any]) -> None:
    """One worker. Our own errors are left in a file: a retry could not mend them."""
    configure_logging("pretrain")
    config = TaskConfig.model_validate(work["task"])
    place = PretrainingRun(Home(Path(work["home"])), config.name, work["run"])
    try:
        _pretrain(config, place, threads=work["threads"])
    except NightmillError as error:
        told = {"kind": type(error).__name__, "message": str(error)}
        write_atomically(place.folder / "failure.json", json.dumps(told).encode())


def _pretrain(config: TaskConfig, place: PretrainingRun, *, threads: int) -> None:
    torch.set_num_threads(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = PieceTokenizer(place.tokenizer)
    lesson = make_lesson(
        reload(str(place.start), config.pretrain), config, tokenizer,
        train=load_sequences(place.train), valid=load_sequences(place.valid),
    )  # fmt: skip
    progress = pretrain(
        lesson.objective, lesson.feed, config.pretrain, pad_id=tokenizer.pad_id,
        measure=lesson.measure, resume=_last_state(),
        on_checkpoint=partial(_report, place.folder),
    )  # fmt: skip
    if ray.train.get_context().get_world_rank() == 0:
        save_finished(lesson.objective.model, place)
        told = json.dumps(progress.__dict__).encode()
        write_atomically(place.folder / PROGRESS_FILE, told)


def _report(run: Path, progress: Progress, state: dict[str, Any]) -> None:
    """Hands Ray Train a state; every rank reports, rank 0 with the checkpoint."""
    ended_epoch = progress.batch == 0
    metrics = progress.history[-1] if ended_epoch else {"step": progress.step}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(state, Path(folder) / _STATE_FILE)
            checkpoint = Checkpoint.from_directory(folder)
            with (run / EPOCHS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
        ray.train.report(metrics, checkpoint=checkpoint)


def _last_state() -> dict[str, Any] | None:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        state: dict[str, Any] = torch.load(Path(folder) / _STATE_FILE, weights_only=False)
    return state


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Logs each line that workers, in other processes, add to a JSONL file during the block."""
    path.unlink(missing_ok=True)
    ended = threading.Event()
    thread = threading.Thread(target=_tell, args=(path, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tell(path: Path, ended: threading.Event) -> None:
    told = 0
    while True:
        last = ended.wait(_POLL_S)
        # What follows the last line end is still being written.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        for line in lines[told:]:
            log.info(
                "%s", ", ".join(f"{name} {value:.5g}" for name, value in json.loads(line).items())
            )
        told = len(lines)
        if last:
            return
