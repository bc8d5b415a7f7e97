"""Workers in which a pruned model recovers: each runs the plain loop with its rank."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.ray_training import errors_left_in, prepare_worker, run_workers
from jobs.training import describe_epoch, fit_and_save
from pipeline.engines.host import computes_in_bf16
from pipeline.heads import head_slices
from pipeline.model.checkpoint import load_checkpoint
from pipeline.model.distil.lesson import label_weight, more_examples, read_lesson
from pipeline.model.fit import fit
from pipeline.model.labelled import load_examples
from pipeline.model.prune.recovery import recovery_config, recovery_recipe
from schemas.errors import ConfigError
from schemas.prune import PruneConfig, PruningFolder
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.training import TrainingRun


def run_recovery(
    config: TaskConfig, place: TrainingRun, work: PruningFolder, *, pad_id: int, key: str
) -> None:
    """Trains the checkpoint `start/` in `work`; leaves `recovered/` and `progress.json` there.

    Where the run was distilled, its teachers' answers, which it kept, teach the cut model too.

    Raises:
        NightmillError, ShardError: see `run_workers`.
    """
    told = {
        "task": config.model_dump(mode="json"),
        "folder": str(work.folder),
        "run": str(place.folder),
        "examples": str(place.examples),
        "tokenizer": str(place.tokenizer),
        "pad_id": pad_id,
    }
    run_workers(
        _worker, told, config=config.train, folder=work.folder, key=key,
        describe=_describe, what=f"recovery of the pruned run {place.name}",
    )  # fmt: skip


def _describe(epoch: Mapping[str, Any]) -> str:
    return f"recovery, {describe_epoch(epoch)}"


def _worker(told: dict[str, Any]) -> None:
    prepare_worker("prune", threads=told["threads"])
    work = PruningFolder(Path(told["folder"]))
    with errors_left_in(work.folder):
        _recover(TaskConfig.model_validate(told["task"]), work, told)


def _recover(config: TaskConfig, work: PruningFolder, told: dict[str, Any]) -> None:
    config_of_fit, heads = recovery_config(config.train), head_slices(config.heads)
    run, examples = Path(told["run"]), load_examples(Path(told["examples"]))
    train = [example for example in examples if example.split == "train"]
    train += more_examples(run, config)
    valid = [example for example in examples if example.split == "valid"]
    # The teachers' layers are not followed: there are others left now, of other widths.
    taught = read_lesson(run, config).soft_targets(config, train, heads, folder=run)
    model = load_checkpoint(work.start, config_of_fit, heads)
    recipe = recovery_recipe(
        config_of_fit, _settings(config), n_train=len(train),
        hidden_size=model.heads.in_features, computes_in_bf16=computes_in_bf16(),
    )  # fmt: skip
    loop = partial(
        fit, model, train=train, valid=valid, heads=heads, config=config_of_fit, recipe=recipe,
        pad_id=told["pad_id"], extra_losses=taught, label_weight=label_weight(config),
    )  # fmt: skip
    fit_and_save(
        loop, model, recipe,
        folder=work.folder, checkpoint=work.recovered, tokenizer=Path(told["tokenizer"]),
    )  # fmt: skip


def _settings(config: TaskConfig) -> PruneConfig:
    if config.compress.prune is None:
        raise ConfigError("compress.prune is not set; nothing is there to recover from")
    return config.compress.prune
