"""Workers of Ray Train for a plain training loop: started, followed, resumed, their errors told."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from jobs.follow import following
from jobs.logs import configure_logging
from jobs.ray_session import ray_session
from pipeline.engines.host import usable_cpus
from schemas import errors
from schemas.errors import NightmillError, ShardError
from schemas.manifest import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from schemas.pretrain import PretrainConfig
    from schemas.task import TrainConfig

_EPOCHS_FILE = "epochs.jsonl"
_FAILURE_FILE = "failure.json"
_STATE_FILE = "state.pt"


def run_workers(
    worker: Callable[[dict[str, Any]], None],
    work: dict[str, Any],
    *,
    config: TrainConfig | PretrainConfig,
    folder: Path,
    key: str,
    describe: Callable[[Mapping[str, Any]], str],
    what: str,
) -> None:
    """Runs `worker(work)` in `config.workers` processes; what they report is logged meanwhile.

    A worker finds its number of threads in its `work`, as `threads`.

    A worker that dies is started again and goes on from the last state that was reported, as does a
    run that was killed: `key` names it.

    Raises:
        NightmillError: what a worker raised on purpose.
        ShardError: workers died more often than `config.max_failures`.
    """
    failure = folder / _FAILURE_FILE
    failure.unlink(missing_ok=True)
    threads = config.threads_per_worker or max(1, usable_cpus() // config.workers)
    with ray_session(cpus=config.workers), following(folder / _EPOCHS_FILE, describe=describe):
        trainer = TorchTrainer(
            worker,
            train_loop_config=work | {"threads": threads},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(
                num_workers=config.workers, resources_per_worker={"CPU": 1}
            ),
            run_config=RunConfig(
                # The same name and folder take a killed run up where it was.
                name=key,
                storage_path=str(folder / "ray"),
                failure_config=FailureConfig(max_failures=config.max_failures),
                checkpoint_config=CheckpointConfig(num_to_keep=1),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise ShardError(
                f"{what}: workers failed more than {config.max_failures} times "
                f"({str(error)[:500]}); run again to go on"
            ) from error
    if failure.exists():
        told = json.loads(failure.read_text())
        raise getattr(errors, told["kind"])(told["message"])


def prepare_worker(job: str, *, threads: int) -> None:
    """Has this process log as `job`, compute with so many threads, and tokenize with one."""
    configure_logging(job)
    torch.set_num_threads(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


@contextmanager
def errors_left_in(folder: Path) -> Iterator[None]:
    """A worker's own errors are left in a file for the driver: a retry could not mend them."""
    try:
        yield
    except NightmillError as error:
        told = {"kind": type(error).__name__, "message": str(error)}
        write_atomically(folder / _FAILURE_FILE, json.dumps(told).encode())


def is_first_rank() -> bool:
    """Whether this worker is the one that writes files."""
    return bool(ray.train.get_context().get_world_rank() == 0)


def tell(folder: Path, line: Mapping[str, Any]) -> None:
    """Has the driver log a line, as its `describe` puts it; the first rank speaks for all."""
    if is_first_rank():
        with (folder / _EPOCHS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def report_state(folder: Path, metrics: dict[str, Any], state: dict[str, Any]) -> None:
    """Hands Ray Train a state to resume from; every rank reports, the first with the checkpoint."""
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = None
        if is_first_rank():
            torch.save(state, Path(scratch) / _STATE_FILE)
            checkpoint = Checkpoint.from_directory(scratch)
        tell(folder, metrics)
        ray.train.report(metrics, checkpoint=checkpoint)


def last_state() -> dict[str, Any] | None:
    """The state that was reported last; None at the start of a run."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        state: dict[str, Any] = torch.load(Path(folder) / _STATE_FILE, weights_only=False)
    return state
