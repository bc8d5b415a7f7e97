"""The rows of a date that were rejected, for people: how many, why, and what they looked like."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.options import Context, dates_options, job, overrides_argument
from pipeline.excerpt import Excerpts, printable
from pipeline.publish import Partition
from pipeline.quarantined import QuarantinedRow, Tally, quarantined_rows, row_name
from schemas.errors import ArtifactError
from schemas.load import load_task
from schemas.manifest import ShardManifest
from schemas.partition import date_range, parse_date
from schemas.reasons import parse_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.reasons import Reason
    from schemas.task import TaskConfig

_SHOWN_CHARS = 160
_DETAIL_CHARS = 120


@dataclass(frozen=True)
class Rejects:
    """Where the rejected rows of one date lie, and of how many rows they are."""

    date: str
    run: str
    rows_read: int
    files: tuple[Path, ...]


@job(
    "quarantine",
    epilog="\b\nExamples:\n"
    "  nightmill quarantine show tickets --date 2026-11-28\n"
    "  nightmill quarantine show tickets --date 2026-11-22 --through 2026-11-28 "
    "--reason missing_text --samples 10\n"
    "  nightmill quarantine show tickets --date 2026-11-28 --staged\n",
)
@click.argument("action", type=click.Choice(["show"]))
@click.argument("task")
@dates_options
@click.option("--reason", "reasons", multiple=True, help="Only rows rejected for this reason.")
@click.option("--samples", type=click.IntRange(min=0), default=3, show_default=True,
              help="Rows shown for each reason.")  # fmt: skip
@click.option("--columns", is_flag=True, help="Count by what was wrong, not by reason alone.")
@click.option("--unmasked", is_flag=True, help="Show personal data as it came.")
@click.option("--staged", is_flag=True, help="Of the run that was scored last and not published.")
@overrides_argument
def command(  # noqa: PLR0913 - options of a command line
    context: Context,
    *,
    action: str,
    task: str,
    date: str,
    through: str | None,
    reasons: tuple[str, ...],
    samples: int,
    columns: bool,
    unmasked: bool,
    staged: bool,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Show the rejected rows of a date of TASK by reason, with counts and samples.

    Personal data in the samples is masked as the task's cleaning does it, and control characters
    are written as escapes.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    wanted = parse_reasons(reasons)
    nights = [_rejects(Partition(context.home, config.name, day), staged=staged) for day in dates]
    tallies = [_tally(night, wanted, samples=samples, columns=columns) for night in nights]
    # Wide enough for a log as well: a pipe has no width of its own.
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)
    excerpts = Excerpts(config.clean, max_chars=_SHOWN_CHARS, masked=not unmasked)
    _print(console, config, nights, tallies, excerpts)
    return {
        "dates": {
            night.date: _summary(night, tally) for night, tally in zip(nights, tallies, strict=True)
        }
    }


def _rejects(partition: Partition, *, staged: bool) -> Rejects:
    if not staged:
        manifest = partition.published()
        return Rejects(
            manifest.date, manifest.run, manifest.counters.rows_read,
            partition.quarantine_files(manifest),
        )  # fmt: skip
    staging = partition.staged()
    if staging is None:
        raise ArtifactError(
            f"{partition.task} {partition.date}: no run waits for publication; leave --staged out"
        )
    shards = [ShardManifest.read(path) for path in staging.shards.glob("*.json")]
    return Rejects(
        partition.date.isoformat(), staging.folder.name,
        sum(shard.counters.rows_read for shard in shards), staging.rejected(),
    )  # fmt: skip


def _tally(night: Rejects, reasons: Sequence[Reason], *, samples: int, columns: bool) -> Tally:
    tally = Tally(samples)
    for row in quarantined_rows(night.files):
        if not reasons or row["reason"] in reasons:
            detail = (row["detail"],) if columns else ()
            tally.add((row["reason"], row["stage"], *detail), row)
    return tally


def _summary(night: Rejects, tally: Tally) -> dict[str, Any]:
    by_reason: dict[str, int] = {}
    for (reason, *_), rows in tally.rows.items():
        by_reason[reason] = by_reason.get(reason, 0) + rows
    return {
        "run": night.run,
        "rows_read": night.rows_read,
        "rows": tally.rows.total(),
        "by_reason": dict(sorted(by_reason.items())),
    }


def _print(
    console: Console, config: TaskConfig, nights: Sequence[Rejects], tallies: Sequence[Tally],
    excerpts: Excerpts,
) -> None:  # fmt: skip
    for night, tally in zip(nights, tallies, strict=True):
        console.print(
            f"\n{config.name} {night.date}, run {night.run}: {tally.rows.total()} of "
            f"{night.rows_read} rows rejected"
        )
        if not tally.rows:
            continue
        console.print(_counts(night, tally))
        for key, rows in tally.samples.items():
            console.print(_samples(key, rows, excerpts))


def _counts(night: Rejects, tally: Tally) -> Table:
    detailed = any(len(key) > 2 for key in tally.rows)
    table = Table()
    for name in ("reason", "stage", *(["detail"] if detailed else [])):
        table.add_column(name, overflow="fold")
    for name in ("rows", "share"):
        table.add_column(name, justify="right")
    for key, rows in tally.rows.most_common():
        cells = [printable(cell, max_chars=_DETAIL_CHARS) for cell in key]
        table.add_row(*map(Text, cells), str(rows), f"{rows / max(night.rows_read, 1):.2%}")
    return table


def _samples(key: tuple[str, ...], rows: Sequence[QuarantinedRow], excerpts: Excerpts) -> Table:
    title = printable(": ".join([key[0], *key[2:]]), max_chars=_DETAIL_CHARS)
    table = Table(title=Text(title), title_justify="left", show_lines=True)
    for name in ("record", "from", "detail", "row as it came"):
        table.add_column(name, overflow="fold")
    for row in rows:
        place = f"{row['source_file'].rpartition('/')[2]}:{row['source_row']}"
        cells = [
            row_name(row) if row["record_id"] else "",
            printable(place, max_chars=_DETAIL_CHARS),
            printable(row["detail"], max_chars=_DETAIL_CHARS),
            _shown(row, excerpts),
        ]
        table.add_row(*map(Text, cells))
    return table


def _shown(row: QuarantinedRow, excerpts: Excerpts) -> str:
    if row["raw"] is None:  # by policy
        return f"({row['raw_bytes']} bytes, SHA-256 {row['raw_sha256'][:16]})"
    return excerpts.of(row["raw"])
