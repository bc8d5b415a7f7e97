"""The whole way from labelled rows to a registered model, in one process."""

from __future__ import annotations

import logging
from typing import Any

import click

from jobs.bundle import bundle, summary
from jobs.finetune import finetune, reason_option
from jobs.options import Context, dry_run_option, job, overrides_argument, run_option, show_config
from jobs.register import register
from pipeline.engines.registry import Registry
from schemas.load import load_task

log = logging.getLogger(__name__)


@job(
    "train",
    epilog="\b\nExamples:\n"
    "  nightmill train tickets\n"
    "  nightmill train tickets train.epochs=2 compress.prefer=[int8_static]\n"
    "  nightmill train tickets --dry-run\n",
)
@click.argument("task")
@run_option
@reason_option
@click.option("--promote", is_flag=True, help="Make the new version the champion.")
@dry_run_option
@overrides_argument
def command(
    context: Context,
    task: str,
    run: str | None,
    reason: str,
    promote: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Fine-tune, bundle and register a model for TASK.

    The new version becomes `challenger`. It becomes `champion` with --promote, or when the task
    has none yet, since it then displaces nobody.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    finetuned = finetune(config, context, run=run, reason=reason)
    spec = bundle(config, context, finetuned)
    registered = register(config, context, finetuned)
    registry = Registry(context.home)
    first = registry.champion(config.name) is None
    if promote or first:
        reason = "the first version" if first else "promoted by the one who trained it"
        registry.promote(config.name, registered.version, approver="nightmill train", reason=reason)
    champion = registry.champion(config.name)
    for name, metrics in spec.metrics.items():
        log.info(
            "%s: accuracy %.4f, macro-F1 %.4f on %d held-out records (%s)",
            name, metrics.accuracy, metrics.macro_f1, metrics.rows, spec.variant,
        )  # fmt: skip
    if champion != registered.version:
        log.info(
            "version %s is challenger, champion stays version %s; "
            "`nightmill promote %s` changes that",
            registered.version, champion, task,
        )  # fmt: skip
    return summary(finetuned.run, spec) | {
        "name": registered.name, "version": registered.version, "champion": champion,
    }  # fmt: skip
