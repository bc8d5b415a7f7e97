"""A bundle into the registry, as challenger."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobs import lineage_facts
from jobs.lineage import step
from jobs.options import Context, job, overrides_argument, run_option
from jobs.run_tree import log_register, run_page
from pipeline.bundle import load_spec
from pipeline.engines.registry import CHALLENGER, Registry
from schemas.errors import ConfigError
from schemas.load import load_task
from schemas.training import Finetuned, Registered, TrainingRun

if TYPE_CHECKING:
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@job("register", epilog="\b\nExample:\n  nightmill register tickets --run trial-1\n")
@click.argument("task")
@run_option
@overrides_argument
def command(
    context: Context, task: str, run: str | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Log a run's bundle to MLflow as a new version of TASK's model, alias `challenger`.

    The third step of `nightmill train`.
    """
    config = load_task(task, context.home, overrides=overrides)
    if run is None:
        raise ConfigError("register needs --run, the name that `nightmill finetune` answered")
    finetuned = TrainingRun(context.home, config.name, run).finetuned()
    registered = register(config, context, finetuned)
    registry = Registry(context.home)
    return registered.model_dump() | {
        "run_id": finetuned.mlflow_run_id,
        "champion": registry.champion(config.name),
        "page": run_page(context.home, finetuned.mlflow_run_id),
    }


def register(config: TaskConfig, context: Context, finetuned: Finetuned) -> Registered:
    """Registers a bundle; the same bundle again keeps its version.

    Raises:
        ArtifactError: the run has no bundle, or its files are damaged.
    """
    place = TrainingRun(context.home, config.name, finetuned.run)
    spec = load_spec(place.bundle)
    told = step("register", config.name, home=context.home, identity=spec.digest).start()
    registry = Registry(context.home)
    version = registry.register(config.name, place.bundle, run_id=finetuned.mlflow_run_id)
    registry.finish_run(finetuned.mlflow_run_id)
    registered = Registered(name=config.name, version=version, digest=spec.digest)
    log_register(context.home, finetuned.mlflow_run_id, registered)
    registered.write(place.folder / "registered.json")
    told.complete(partial(lineage_facts.registered, place, finetuned, registered))
    log.info("registered models:/%s/%s as %s", config.name, version, CHALLENGER)
    return registered
