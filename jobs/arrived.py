"""`nightmill arrived`: whether the input of a date is there, without reading it."""

from __future__ import annotations

import logging
from typing import Any

import click

from jobs.late_input import is_there
from jobs.options import Context, dates_options, job, overrides_argument
from schemas.load import load_task
from schemas.partition import date_range, parse_date

log = logging.getLogger(__name__)


@job(
    "arrived",
    epilog="\b\nExamples:\n"
    "  nightmill arrived tickets --date 2026-11-28\n"
    "  nightmill arrived tickets --date 2026-11-28 "
    "schedule.late.marker=incoming/tickets/date={date}/_SUCCESS\n",
)
@click.argument("task")
@dates_options
@overrides_argument
def command(
    context: Context, *, task: str, date: str, through: str | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Say whether the input of a date of TASK is there: the marker, else any file.

    Ends well either way; the result names the dates that are missing, and what was looked for.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    marker = config.schedule.late.marker if config.schedule else None
    location = marker or config.data.incoming
    missing = [day.isoformat() for day in dates if not is_there(location, context.home, day)]
    if missing:
        log.info("%s: nothing matches %s for %s", config.name, location, ", ".join(missing))
    return {"missing": missing, "location": location}
