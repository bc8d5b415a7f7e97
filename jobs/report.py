"""What was scored, for people: rows, quarantine, quality, speed, samples, and where it lies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from jobs.options import Context, dates_options, job, overrides_argument
from pipeline.outcome_report import Night, compare_with_outcomes, read_night, read_scores
from pipeline.run_report import (
    cost_per_1000_rows,
    rows_per_s,
    tokens_per_s,
    total_s,
)
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    import pyarrow as pa

    from schemas.bundle import HeadMetrics
    from schemas.home import Home
    from schemas.manifest import Effort
    from schemas.task import TaskConfig

_SAMPLES = 3


@job(
    "report",
    epilog="\b\nExamples:\n"
    "  nightmill report tickets --date 2026-11-28\n"
    "  nightmill report tickets --date 2026-11-22 --through 2026-11-28\n",
)
@click.argument("task")
@dates_options
@overrides_argument
def command(
    context: Context, task: str, date: str, through: str | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Show what was scored of TASK on a date: rows, quarantine, quality, samples.

    Quality is measured against `data.outcomes`, what people decided later on, where it has arrived.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    nights = [read_night(context.home, config.name, day) for day in dates]
    quality = compare_with_outcomes(config, context.home, [night.manifest for night in nights])
    # Wide enough for a log as well: a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(f"\n[bold]{config.name}[/bold]  {config.description}")
    console.print(_days(nights))
    console.print(_costs(nights))
    for line in [line for night in nights for line in _remarks(night)]:
        console.print(line, markup=False, soft_wrap=True)
    if quality:
        console.print(_quality(quality))
    console.print(_samples(config, context.home, nights[-1]))
    console.print(_places(config, context.home, nights[-1]), soft_wrap=True)
    return {
        "rows": {night.manifest.date: _row_counts(night) for night in nights},
        "cost": {night.manifest.date: _cost_figures(night.effort) for night in nights},
        "quality": {name: metrics.model_dump() for name, metrics in quality.items()},
    }


def _row_counts(night: Night) -> dict[str, int]:
    counters = night.manifest.counters
    return {
        "read": counters.rows_read,
        "scored": counters.rows_scored,
        "quarantined": counters.rows_quarantined,
        "review": counters.rows_to_review,
        "replayed": sum(replay.rows_scored for replay in night.manifest.replays),
    }


def _days(nights: list[Night]) -> Table:
    table = Table(title="rows read = scored + quarantined", title_justify="left")
    for name in ("date", "read", "scored", "to people", "quarantined"):
        table.add_column(name, justify="left" if name == "date" else "right")
    table.add_column("quarantined because", overflow="fold")
    for night in nights:
        counters = night.manifest.counters
        reasons = ", ".join(f"{n} {name}" for name, n in counters.quarantined_by_reason.items())
        table.add_row(
            night.manifest.date, str(counters.rows_read), str(counters.rows_scored),
            str(counters.rows_to_review), str(counters.rows_quarantined), reasons,
        )  # fmt: skip
    return table


def _costs(nights: list[Night]) -> Table:
    """A line for each date; remembered texts and a price only where there are some."""
    lines = [_cost_line(night) for night in nights]
    table = Table(title="how it was scored", title_justify="left")
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    for name in names:
        table.add_column(name, justify="left" if name == "date" else "right")
    for line in lines:
        table.add_row(*(line[name] for name in names))
    return table


def _cost_line(night: Night) -> dict[str, str]:
    effort = night.effort
    cost = cost_per_1000_rows(effort)
    return {
        "date": night.manifest.date,
        "rows": str(effort.rows_scored),
        "workers": str(effort.workers),
        "rows/s": f"{rows_per_s(effort):.0f}",
        "tokens/s": f"{tokens_per_s(effort):.0f}",
        "MiB a worker": str(effort.worker_peak_mib),
        "seconds": f"{total_s(effort):.1f}",
        "of which scoring": f"{effort.steps.get('scoring', 0.0):.1f}",
        "remembered": str(effort.texts_remembered or ""),
        "per 1,000 rows": "" if cost is None else f"{cost:.4f}",
    }


def _cost_figures(effort: Effort) -> dict[str, Any]:
    return {
        "rows_scored": effort.rows_scored,
        "shards_kept": effort.shards_kept,
        "rows_per_s": round(rows_per_s(effort), 1),
        "tokens_per_s": round(tokens_per_s(effort), 1),
        "worker_peak_mib": effort.worker_peak_mib,
        "seconds": round(total_s(effort), 3),
        "cost_per_1000_rows": cost_per_1000_rows(effort),
    }


def _remarks(night: Night) -> list[str]:
    """Broken rules that did not reject a row, and replays that have added rows since."""
    manifest = night.manifest
    lines = []
    for what, rules in (
        ("warned", manifest.counters.warned),
        ("stopped", manifest.counters.stopped),
    ):
        if rules:
            counts = ", ".join(f"{n} {rule}" for rule, n in rules.items())
            lines.append(f"{manifest.date}  {what}: {counts}")
    lines += [
        f"{manifest.date}  replayed: {replay.rows_scored} of {replay.rows_replayed} quarantined "
        f"rows were added to run {replay.base}"
        for replay in manifest.replays
    ]
    return lines


def _quality(quality: dict[str, HeadMetrics]) -> Table:
    table = Table(title="against what people decided later", title_justify="left")
    for name in ("head", "rows", "accuracy", "95 % interval", "macro-F1", "95 % interval",
                 "calibration error", "majority"):  # fmt: skip
        table.add_column(name, justify="left" if name == "head" else "right")
    for name, metrics in quality.items():
        table.add_row(
            name, str(metrics.rows), f"{metrics.accuracy:.3f}",
            _interval(metrics.accuracy_interval), f"{metrics.macro_f1:.3f}",
            _interval(metrics.macro_f1_interval),
            f"{metrics.expected_calibration_error:.3f}", f"{metrics.majority_accuracy:.3f}",
        )  # fmt: skip
    return table


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _samples(config: TaskConfig, home: Home, night: Night) -> Table:
    scores: pa.Table = read_scores(home, night.manifest)
    table = Table(title=f"{_SAMPLES} rows of {night.manifest.date}", title_justify="left")
    table.add_column("record_id")
    for name in config.heads:
        table.add_column(name)
        table.add_column("conf.", justify="right")
    for name in ("decision", "lang", "windows", "model"):
        table.add_column(name)
    for row in scores.slice(0, _SAMPLES).to_pylist():
        cells = [row["record_id"]]
        for name in config.heads:
            label = row[name] if isinstance(row[name], str) else ", ".join(row[name]) or "none"
            cells += [label, f"{row[f'{name}_confidence']:.2f}"]
        model = f"{row['model_name']}/{row['model_version']} {row['model_digest'][:8]}"
        table.add_row(*cells, row["decision"], row["lang"], str(row["n_windows"]), model)
    return table


def _places(config: TaskConfig, home: Home, night: Night) -> str:
    manifest = night.manifest
    scores = home.scores(config.name) / f"date={manifest.date}"
    pages = home.quality(config.name) / f"date={manifest.date}" / "index.html"
    lines = [
        f"scores      {scores / f'run={manifest.run}'}",
        f"manifest    {scores / 'manifest.json'}",
        f"quarantine  {home.quarantine(config.name) / f'date={manifest.date}'}",
    ]
    if pages.exists():
        lines.append(f"quality     {pages}")
    return "\n".join(lines)
