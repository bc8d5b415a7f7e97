"""What a night will take, before it runs: workers, batching, rows/s, hours and cost."""

from __future__ import annotations

import datetime as dt
import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, job, overrides_argument
from pipeline.batch_plan import expected_tokens_per_s
from pipeline.bundle import calibrate_host, fitting_text_flow
from pipeline.drift import read_history
from pipeline.engines.calibration import calibrate
from pipeline.engines.host import describe_host, usable_cpus
from pipeline.engines.registry import Registry
from pipeline.forecast import Forecast, Texts, profiled_texts, sampled_texts
from pipeline.publish import Partition
from pipeline.survey import find_inputs, survey
from schemas.errors import ConfigError
from schemas.load import load_task
from schemas.partition import parse_date

if TYPE_CHECKING:
    from pipeline.flow import TextFlow
    from schemas.home import Home
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

# Command to manifest of a date with hardly a row, where no earlier run tells it.
_FIXED_S = 15.0


@job(
    "plan",
    epilog="\b\nExamples:\n"
    "  nightmill plan tickets --date 2026-11-28\n"
    "  nightmill plan tickets --rows 2000000 score.price_per_hour=0.8\n",
)
@click.argument("task")
@click.option("--date", help="Partition whose rows are to be scored, as YYYY-MM-DD.")
@click.option("--rows", type=click.IntRange(min=1), help="Rows of the night [default: the date's].")
@overrides_argument
def command(
    context: Context, *, task: str, date: str | None, rows: int | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Show how this host would score TASK: workers, batching, expected rows/s, hours and cost.

    How long the texts are is read from the date's profile (`nightmill validate` writes it), or from
    a sample of its input; without --date, from the latest profile. Nothing is scored.
    """
    config = load_task(task, context.home, overrides=overrides)
    if config.score.device == "gpu":
        raise ConfigError("plan measures CPUs only; set score.device=cpu, or run the job and look")
    result = _plan(config, context.home, parse_date(date, name="--date") if date else None, rows)
    for name, value in result.items():
        click.echo(f"{name:<22}{value}")
    return result


def _plan(task: TaskConfig, home: Home, day: dt.date | None, rows: int | None) -> dict[str, Any]:
    model, bundle = Registry(home).fetch(task.model_uri)
    spec, flow = fitting_text_flow(bundle, task)
    texts = _texts(task, home, day, flow)
    texts = texts if rows is None else replace(texts, rows=rows)
    table = calibrate_host(bundle, task, plans=home.plans)
    measured = calibrate(bundle, spec, task, plans=home.plans)
    rate = expected_tokens_per_s(measured, table, window_tokens=texts.tokens_per_window)
    cpus = usable_cpus()
    forecast = Forecast(
        texts,
        workers=task.score.workers or max(1, cpus - task.score.io_cpus),
        engine_tokens_per_s=rate,
        fixed_s=_fixed_s(home, task.name),
        price_per_hour=task.score.price_per_hour,
    )
    return {
        "model": f"{model.name}/{model.version} {spec.variant}",
        "host": " ".join(describe_host().cpu_features),
        "cpus": cpus,
        "threads_per_worker": 1,
        "batching": str(table),
        **_figures(forecast),
    }


def _figures(forecast: Forecast) -> dict[str, Any]:
    texts = forecast.texts
    return {
        "workers": forecast.workers,
        "rows": texts.rows,
        "texts": texts.source,
        "tokens_per_row": round(texts.tokens_per_row, 1),
        "tokens_per_window": round(texts.tokens_per_window, 1),
        "worker_tokens_per_s": round(forecast.engine_tokens_per_s),
        "rows_per_s": round(forecast.rows_per_s, 1),
        "fixed_s": round(forecast.fixed_s, 1),
        "hours": round(forecast.hours, 4),
        "cost": None if forecast.cost is None else round(forecast.cost, 4),
    }


def _texts(task: TaskConfig, home: Home, day: dt.date | None, flow: TextFlow) -> Texts:
    """What the date's profile says, or else a sample; without a date the latest profile.

    Raises:
        ConfigError: there is neither a date nor a profile.
        DataContractError: there is no input for the date, or it cannot be read.
    """
    before = dt.date.max if day is None else day + dt.timedelta(days=1)
    profiles = read_history(home.quality(task.name), before=before, partitions=1)
    for profile in profiles:
        texts = profiled_texts(profile)
        if texts is not None and day in {None, dt.date.fromisoformat(profile.date)}:
            return texts
    if day is None:
        raise ConfigError(
            f"no profile of task {task.name!r} says how long its texts are; give --date, "
            f"or run `nightmill validate {task.name} --date D` first"
        )
    with tempfile.TemporaryDirectory() as spool:
        found = survey(
            find_inputs(task.data.incoming, home, date=day),
            data=task.data, home=home, rows_per_shard=task.score.rows_per_shard,
            spool=Path(spool),
        )  # fmt: skip
        return sampled_texts(flow, found.shards)


def _fixed_s(home: Home, task: str) -> float:
    """Seconds of the last published run in which no worker worked: start-up and publication."""
    for folder in sorted(home.scores(task).glob("date=*"), reverse=True):
        day = dt.date.fromisoformat(folder.name.removeprefix("date="))
        for line in reversed(Partition(home, task, day).publications()):
            if line.workers and line.worker_seconds:
                return max(0.0, line.seconds - line.worker_seconds / line.workers)
    return _FIXED_S
