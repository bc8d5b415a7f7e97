"""Which dates a run covers: always said from outside, never read from a clock."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DATES = 31  # what a run tells of each date must fit its result, which Airflow keeps as XCom


def parse_date(text: str, *, name: str) -> date:
    """An ISO date.

    Raises:
        ConfigError: `text` is not one; `name` says which setting it came from.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a date as YYYY-MM-DD, got {text!r}") from None


def date_range(first: date, last: date) -> tuple[date, ...]:
    """All dates from `first` to `last`, both included.

    Raises:
        ConfigError: the range runs backwards or covers more than a month.
    """
    days = (last - first).days + 1
    if days < 1:
        raise ConfigError(f"date range runs backwards: {first} to {last}")
    if days > MAX_DATES:
        raise ConfigError(
            f"date range {first} to {last} has {days} days, at most "
            f"{MAX_DATES} fit one run; use Airflow's backfill for more"
        )
    return tuple(first + timedelta(days=offset) for offset in range(days))


def resolve_dates(
    params: Mapping[str, Any],
    *,
    partition_key: str | None = None,
    logical_date: datetime | None = None,
) -> tuple[date, ...]:
    """Dates of an Airflow run: parameter `date` (to `through`) > partition key > logical date.

    Raises:
        ConfigError: none of the three says a date. A run triggered without a logical date must
            name one, for "today" would give another answer on a rerun.
    """
    first, last = params.get("date") or "", params.get("through") or ""
    if first:
        start = parse_date(first, name="params.date")
        return date_range(start, parse_date(last, name="params.through") if last else start)
    if last:
        raise ConfigError(f"params.through is {last!r} but params.date is empty; set both")
    if partition_key:
        return (parse_date(partition_key, name="partition key"),)
    if logical_date is not None:
        return (logical_date.date(),)
    raise ConfigError(
        "no date: this run has no `date` parameter, partition key or logical date; "
        'trigger it with {"date": "YYYY-MM-DD"}'
    )
