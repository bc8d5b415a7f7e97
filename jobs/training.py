"""Training workers under Ray Train: each runs the plain loop with its rank."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from functools import partial
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
from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier, save_checkpoint
from pipeline.model.fit import Progress, fit
from pipeline.model.labelled import load_examples
from pipeline.model.network import check_length
from pipeline.model.recipe import choose_recipe
from schemas import errors
from schemas.errors import NightmillError, ShardError
from schemas.manifest import write_atomically
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from schemas.training import TrainingRun

log = logging.getLogger(__name__)

_STATE_FILE = "state.pt"
EPOCHS_FILE = "epochs.jsonl"


def run_training(config: TaskConfig, place: TrainingRun, *, pad_id: int, fingerprint: str) -> None:
    """Fine-tunes in `train.workers` processes and leaves `checkpoint/` and `progress.json`.

    A worker that dies is started again and goes on from the last epoch.

    Raises:
        NightmillError: what a worker raised on purpose.
        ShardError: workers died more often than `train.max_failures`.
    """
    workers = config.train.workers
    failure = place.folder / "failure.json"
    failure.unlink(missing_ok=True)
    work = {
        "task": config.model_dump(mode="json"),
        "folder": str(place.folder),
        "threads": config.train.threads_per_worker or max(1, usable_cpus() // workers),
        "pad_id": pad_id,
    }
    with ray_session(cpus=workers), following(place.folder / EPOCHS_FILE):
        trainer = TorchTrainer(
            _worker,
            train_loop_config=work,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                # The same name and folder take a killed run up where it was.
                name=fingerprint[:16],
                storage_path=str(place.folder / "ray"),
                failure_config=FailureConfig(max_failures=config.train.max_failures),
                checkpoint_config=CheckpointConfig(num_to_keep=1),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise ShardError(
                f"training run {place.name}: workers failed more than "
                f"{config.train.max_failures} times ({str(error)[:500]}); run again to go on"
            ) from error
    if failure.exists():
        told = json.loads(failure.read_text())
        raise getattr(errors, told["kind"])(told["message"])


def _worker(work: dict[str, Any]) -> None:
    """One training worker. Our own errors are left in a file: a retry could not mend them."""
    configure_logging("finetune")
    folder = Path(work["folder"])
    try:
        _train(TaskConfig.model_validate(work["task"]), folder, work)
    except NightmillError as error:
        told = {"kind": type(error).__name__, "message": str(error)}
        write_atomically(folder / "failure.json", json.dumps(told).encode())


def _train(config: TaskConfig, folder: Path, work: dict[str, Any]) -> None:
    torch.set_num_threads(work["threads"])
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    examples = load_examples(folder / "examples.parquet")
    train = [example for example in examples if example.split == "train"]
    valid = [example for example in examples if example.split == "valid"]
    heads = head_slices(config.heads)
    model = new_classifier(config.train, heads)
    check_length(model, max_tokens=config.window.max_tokens)
    recipe = choose_recipe(config.train, n_train=len(train), hidden_size=model.heads.in_features)
    log.info(
        "recipe: %d epochs in batches of %d, learning rate %g, heads %g (%s)",
        recipe.epochs, recipe.batch_size, recipe.learning_rate, recipe.head_learning_rate,
        recipe.why,
    )  # fmt: skip
    progress = fit(
        model, train=train, valid=valid, heads=heads, config=config.train, recipe=recipe,
        pad_id=work["pad_id"], resume=_last_state(), on_epoch=partial(_report, folder),
    )  # fmt: skip
    if ray.train.get_context().get_world_rank() == 0:
        save_checkpoint(model, folder / "checkpoint", tokenizer=folder / "tokenizer.json")
        write_atomically(folder / "progress.json", json.dumps(progress.__dict__).encode())


def _report(run: Path, progress: Progress, state: dict[str, Any], is_best: bool) -> None:
    """Hands Ray Train the state after an epoch; every rank reports, rank 0 with the checkpoint."""
    metrics = progress.history[-1] | {"is_best": is_best}
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
