"""Fine-tuning workers: each runs the plain loop with its rank."""

from __future__ import annotations

import json
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from jobs.logs import configure_logging
from jobs.ray_training import errors_left_in, is_first_rank, last_state, report_state, run_workers
from pipeline.heads import head_slices
from pipeline.model.backbone import check_length
from pipeline.model.checkpoint import new_classifier, save_checkpoint
from pipeline.model.fit import Progress, fit
from pipeline.model.labelled import load_examples
from pipeline.model.recipe import choose_recipe
from schemas.manifest import write_atomically
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.training import TrainingRun

log = logging.getLogger(__name__)


def run_training(config: TaskConfig, place: TrainingRun, *, pad_id: int, fingerprint: str) -> None:
    """Fine-tunes in `train.workers` processes and leaves `checkpoint/` and `progress.json`.

    Raises:
        NightmillError, ShardError: see `run_workers`.
    """
    work = {
        "task": config.model_dump(mode="json"),
        "folder": str(place.folder),
        "pad_id": pad_id,
    }
    run_workers(
        _worker, work, config=config.train, folder=place.folder, key=fingerprint[:16],
        describe=_describe, what=f"training run {place.name}",
    )  # fmt: skip


def _describe(epoch: Mapping[str, Any]) -> str:
    best = " (best so far)" if epoch["is_best"] else ""
    return (
        f"epoch {epoch['epoch']}: train loss {epoch['train_loss']:.4f}, valid loss "
        f"{epoch['valid_loss']:.4f}, valid macro-F1 {epoch['valid_macro_f1']:.4f}{best}"
    )


def _worker(work: dict[str, Any]) -> None:
    configure_logging("finetune")
    folder = Path(work["folder"])
    with errors_left_in(folder):
        _train(TaskConfig.model_validate(work["task"]), folder, work)


def _train(config: TaskConfig, folder: Path, work: dict[str, Any]) -> None:
    torch.set_num_threads(work["threads"])
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    examples = load_examples(folder / "examples.parquet")
    train = [example for example in examples if example.split == "train"]
    valid = [example for example in examples if example.split == "valid"]
    heads = head_slices(config.heads)
    model = new_classifier(config.train, heads)
    check_length(model.encoder, max_tokens=config.window.max_tokens, setting="window.max_tokens")
    recipe = choose_recipe(config.train, n_train=len(train), hidden_size=model.heads.in_features)
    log.info(
        "recipe: %d epochs in batches of %d, learning rate %g, heads %g (%s)",
        recipe.epochs, recipe.batch_size, recipe.learning_rate, recipe.head_learning_rate,
        recipe.why,
    )  # fmt: skip
    progress = fit(
        model, train=train, valid=valid, heads=heads, config=config.train, recipe=recipe,
        pad_id=work["pad_id"], resume=last_state(), on_epoch=partial(_report, folder),
    )  # fmt: skip
    if is_first_rank():
        save_checkpoint(model, folder / "checkpoint", tokenizer=folder / "tokenizer.json")
        write_atomically(folder / "progress.json", json.dumps(progress.__dict__).encode())


def _report(folder: Path, progress: Progress, state: dict[str, Any], is_best: bool) -> None:
    report_state(folder, progress.history[-1] | {"is_best": is_best}, state)
