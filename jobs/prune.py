"""A fine-tuned checkpoint into a smaller one: heads, neurons and layers cut out, then recovery."""

from __future__ import annotations

import json
import logging
import shutil
import time
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, dry_run_option, job, overrides_argument, run_option, show_config
from pipeline.engines.registry import Registry
from pipeline.heads import head_slices
from pipeline.model.checkpoint import load_checkpoint, save_checkpoint
from pipeline.model.labelled import load_examples
from pipeline.model.prune.pruner import Pruner
from pipeline.model.search_space import task_with
from schemas.errors import ConfigError
from schemas.fingerprint import digest_of
from schemas.load import load_task
from schemas.prune import Cut, PruneConfig, Pruning, PruningFolder
from schemas.training import Finetuned, TrainingRun

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

DONE_FILE = "pruning.json"
_FIGURES = ("flops_share", "valid_macro_f1_whole", "valid_macro_f1_cut", "valid_macro_f1")


@job(
    "prune",
    epilog="\b\nExamples:\n"
    "  nightmill prune tickets --run trial-1 compress.prune.heads=0.25\n"
    "  nightmill prune tickets --run trial-1 compress.prune.layers=[9,10,11]\n",
)
@click.argument("task")
@run_option
@dry_run_option
@overrides_argument
def command(
    context: Context, task: str, run: str | None, dry_run: bool, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Cut heads, neurons or layers out of a fine-tuned run of TASK.

    Part of `nightmill bundle`, and so of `nightmill train`, where the task has `compress.prune`.
    Alone it shows what a cut costs. The fine-tuned checkpoint stays as it is.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    if run is None:
        raise ConfigError("prune needs --run, the name that `nightmill finetune` answered")
    if config.compress.prune is None:
        raise ConfigError("compress.prune is not set; set compress.prune.neurons=0.25, for example")
    place = TrainingRun(context.home, config.name, run)
    done = prune(config, config.compress.prune, context, place.finetuned())
    return {"run": run} | done.model_dump(mode="json", exclude={"history", "curve"})


def checkpoint_to_ship(config: TaskConfig, context: Context, finetuned: Finetuned) -> Path:
    """The run's checkpoint as fine-tuned, or as pruned where the task asks for that.

    Raises:
        ConfigError, DataContractError, ArtifactError, ShardError: see `prune`.
    """
    place = TrainingRun(context.home, config.name, finetuned.run)
    if config.compress.prune is None:
        return place.checkpoint
    prune(config, config.compress.prune, context, finetuned)
    return place.pruned


def prune(
    config: TaskConfig, settings: PruneConfig, context: Context, finetuned: Finetuned
) -> Pruning:
    """Leaves `pruned/` and `pruning.json` in the run's folder, or answers what is there.

    The cut and the epochs of recovery are kept as they are made, so that a run that was killed
    neither cuts nor trains twice.

    Raises:
        ConfigError: the encoder cannot be cut that way.
        DataContractError, ArtifactError, ShardError: see `Pruner`, `load_checkpoint` and
            `run_recovery`.
    """
    started = time.monotonic()
    config = task_with(config, finetuned.searched)
    place = TrainingRun(context.home, config.name, finetuned.run)
    fingerprint = _fingerprint(config, settings, finetuned)
    done_file, work = place.folder / DONE_FILE, PruningFolder(place.folder / "pruning")
    if done_file.exists() and (done := Pruning.read(done_file)).fingerprint == fingerprint:
        log.info("run %s is already pruned with these settings", place.name)
        return done
    done_file.unlink(missing_ok=True)
    cut = work.cut_by(fingerprint) or _cut(
        config, settings, place, work, fingerprint=fingerprint, pad_id=finetuned.pad_id
    )
    progress = {"best_epoch": 0, "best_metric": -1.0, "history": []}
    if settings.recovery_epochs:
        progress = _recover(config, place, work, pad_id=finetuned.pad_id, key=fingerprint[:16])
    done = _better(place, work, cut, progress, seconds=round(time.monotonic() - started, 1))
    done.write(work.folder / DONE_FILE)
    _log_to_mlflow(context, finetuned, done, work.folder / DONE_FILE)
    done.write(done_file)  # last, so that a run that dies while it logs is logged by the next one
    shutil.rmtree(work.folder)
    return done


def _fingerprint(config: TaskConfig, settings: PruneConfig, finetuned: Finetuned) -> str:
    """Hash over the run, the cut, and how teachers' answers count in recovery."""
    parts = [finetuned.fingerprint, settings.model_dump(mode="json")]
    if config.distil is not None:
        parts.append(config.distil.model_dump(mode="json"))
    return digest_of(parts)


def _cut(
    config: TaskConfig,
    settings: PruneConfig,
    place: TrainingRun,
    work: PruningFolder,
    *,
    fingerprint: str,
    pad_id: int,
) -> Cut:
    """Cuts the fine-tuned model and leaves it in `work`."""
    shutil.rmtree(work.folder, ignore_errors=True)
    heads = head_slices(config.heads)
    model = load_checkpoint(place.checkpoint, config.train, heads)
    pruner = Pruner(
        load_examples(place.examples), heads, train=config.train, prune=settings, pad_id=pad_id
    )
    cut = pruner.prune(model, fingerprint=fingerprint)
    save_checkpoint(model, work.start, tokenizer=place.tokenizer)
    cut.write(work.cut)
    log.info(
        "pruned to %.2f of %.2f million parameters, %.0f %% of the work: "
        "valid macro-F1 %.4f, was %.4f",
        cut.after.parameters / 1e6, cut.before.parameters / 1e6, 100 * cut.flops_share,
        cut.valid_macro_f1_cut, cut.valid_macro_f1_whole,
    )  # fmt: skip
    return cut


def _recover(
    config: TaskConfig, place: TrainingRun, work: PruningFolder, *, pad_id: int, key: str
) -> dict[str, Any]:
    """The progress of recovery, which goes on where it was, or is over."""
    from jobs.pruning import run_recovery  # noqa: PLC0415 - Ray, seconds to import

    if not work.progress.exists():
        run_recovery(config, place, work, pad_id=pad_id, key=key)
    progress: dict[str, Any] = json.loads(work.progress.read_text())
    return progress


def _better(
    place: TrainingRun, work: PruningFolder, cut: Cut, progress: dict[str, Any], *, seconds: float
) -> Pruning:
    """Leaves the cut or the recovered model in `pruned/`, whichever validates better."""
    is_better = progress["best_metric"] >= cut.valid_macro_f1_cut
    macro_f1 = progress["best_metric"] if is_better else cut.valid_macro_f1_cut
    log.info("the pruned model ships with valid macro-F1 %.4f", macro_f1)
    shutil.rmtree(place.pruned, ignore_errors=True)
    shutil.copytree(work.recovered if is_better else work.start, place.pruned)
    return Pruning(
        **cut.model_dump(),
        valid_macro_f1=macro_f1,
        best_epoch=progress["best_epoch"] if is_better else 0,
        history=tuple(progress["history"]),
        seconds=seconds,
    )


def _log_to_mlflow(context: Context, finetuned: Finetuned, done: Pruning, file: Path) -> None:
    """Figures of the pruned model, and the curve with its share in percent as step."""
    registry, run_id = Registry(context.home), finetuned.mlflow_run_id
    figures = done.after.model_dump() | done.model_dump(include=set(_FIGURES))
    registry.log_metrics(run_id, {f"prune.{name}": value for name, value in figures.items()})
    for point in done.curve:
        curve = point.model_dump(include={"valid_macro_f1", "flops_share"})
        registry.log_metrics(
            run_id,
            {f"prune.curve.{point.part}.{name}": value for name, value in curve.items()},
            step=round(100 * point.share),  # percent
        )
    for epoch in done.history:
        macro_f1 = {"prune.recovery.valid_macro_f1": epoch["valid_macro_f1"]}
        registry.log_metrics(run_id, macro_f1, step=int(epoch["epoch"]))
    kept = ", ".join(
        f"{row.layer}: {row.heads} heads, {row.neurons} neurons" for row in done.layers
    )
    registry.tag(run_id, {"nightmill.pruned": kept})
    registry.log_file(run_id, file, under="pruning")
