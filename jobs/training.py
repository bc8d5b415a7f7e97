"""Fine-tuning workers: each runs the plain loop with its rank."""

from __future__ import annotations

import json
from dataclasses import dataclass
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
    tell,
)
from pipeline.engines.host import computes_in_bf16
from pipeline.heads import head_slices
from pipeline.model.backbone import check_length
from pipeline.model.checkpoint import save_checkpoint
from pipeline.model.distil.lesson import label_weight, more_examples, new_student, read_lesson
from pipeline.model.domain_adversarial import domain_losses
from pipeline.model.domain_texts import load_domain
from pipeline.model.fit import Progress, fit
from pipeline.model.labelled import load_examples
from pipeline.model.recipe import choose_recipe
from schemas.manifest import write_atomically
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.heads import HeadSlice
    from pipeline.model.distil.lesson import Lesson
    from pipeline.model.fit import OnEpoch, OnStep
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.model.recipe import Recipe
    from schemas.training import TrainingRun


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
        describe=describe_epoch, what=f"training run {place.name}",
    )  # fmt: skip


def describe_epoch(epoch: Mapping[str, Any]) -> str:
    """What the log says of a line of `fit_and_save`."""
    if "recipe" in epoch:
        return f"recipe: {epoch['recipe']}"
    if "in_epoch" in epoch:
        return describe_step(epoch)
    best = " (best so far)" if epoch["is_best"] else ""
    left = f", at most {duration(epoch['left_s'])} left" if epoch["left_s"] else ""
    return (
        f"epoch {epoch['epoch']}: train loss {epoch['train_loss']:.4f}, valid loss "
        f"{epoch['valid_loss']:.4f}, valid macro-F1 {epoch['valid_macro_f1']:.4f}{best}{left}"
    )


def _worker(work: dict[str, Any]) -> None:
    prepare_worker("finetune", threads=work["threads"])
    config, folder = TaskConfig.model_validate(work["task"]), Path(work["folder"])
    with bound(task=config.name, run=folder.name), errors_left_in(folder):
        parts = prepare(config, folder)
        fit_and_save(
            partial(learn, parts, config, folder, pad_id=work["pad_id"]), parts.model, parts.recipe,
            folder=folder, checkpoint=folder / "checkpoint", tokenizer=folder / "tokenizer.json",
        )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """What training begins with: records, an untrained model, and a recipe."""

    train: list[Example]
    valid: list[Example]
    heads: tuple[HeadSlice, ...]
    lesson: Lesson
    model: Classifier
    recipe: Recipe


def prepare(config: TaskConfig, folder: Path) -> Prepared:
    """Reads what the step `finetune` left in `folder` and makes a model and its recipe.

    Raises:
        ArtifactError, ConfigError: see `read_lesson`, `new_student` and `check_length`.
    """
    examples = load_examples(folder / "examples.parquet")
    train = [example for example in examples if example.split == "train"]
    valid = [example for example in examples if example.split == "valid"]
    heads = head_slices(config.heads)
    lesson = read_lesson(folder, config)
    train += more_examples(folder, config)
    model = new_student(config, heads, lesson)
    check_length(model.encoder, max_tokens=config.window.max_tokens, setting="window.max_tokens")
    recipe = choose_recipe(
        config.train, n_train=len(train), hidden_size=model.heads.in_features,
        computes_in_bf16=computes_in_bf16(),
    )  # fmt: skip
    return Prepared(train, valid, heads, lesson, model, recipe)


def learn(
    parts: Prepared,
    config: TaskConfig,
    folder: Path,
    *,
    pad_id: int,
    on_epoch: OnEpoch,
    resume: dict[str, Any] | None = None,
    on_step: OnStep | None = None,
) -> Progress:
    """Trains the model with all that the task asks for; see `fit`."""
    domains = domain_losses(
        load_domain(folder / "domain.parquet", config.train), config.train,
        hidden_size=parts.model.heads.in_features, precision=parts.recipe.precision,
        pad_id=pad_id,
    )  # fmt: skip
    taught = parts.lesson.losses(config, parts.train, parts.heads, folder=folder, pad_id=pad_id)
    return fit(
        parts.model, train=parts.train, valid=parts.valid, heads=parts.heads, config=config.train,
        recipe=parts.recipe, pad_id=pad_id, resume=resume, on_epoch=on_epoch,
        # Domains last, as they make passes of their own.
        extra_losses=(*taught, *domains),
        label_weight=label_weight(config),
        on_step=on_step,
    )  # fmt: skip


def fit_and_save(
    loop: Callable[..., Progress],
    model: Classifier,
    recipe: Recipe,
    *,
    folder: Path,
    checkpoint: Path,
    tokenizer: Path,
) -> None:
    """Trains `model` by a `loop` that waits for `resume` and two callbacks, in a Ray worker.

    Recipe, epochs and now and then a step are told in `folder`, where the first rank leaves
    `progress.json` when the checkpoint is complete.
    """
    tell(folder, {"recipe": str(recipe)})
    pace = Pace(folder)
    progress = loop(
        resume=last_state(), on_epoch=partial(_report, folder, pace), on_step=pace.on_step
    )
    if is_first_rank():
        save_checkpoint(model, checkpoint, tokenizer=tokenizer)
        told = progress.__dict__ | {"recipe": str(recipe)}
        write_atomically(folder / "progress.json", json.dumps(told).encode())


def _report(
    folder: Path, pace: Pace, progress: Progress, state: dict[str, Any], is_best: bool
) -> None:
    told = {"is_best": is_best, "left_s": pace.left_s()}
    pace.end_epoch()
    report_state(folder, progress.history[-1] | told, state)
