"""Which dates a run covers: its parameters, its partition key, its event, its logical date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from dags.form_fields import text
from schemas.errors import ConfigError
from schemas.partition import parse_date, resolve_dates

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from airflow.sdk import Param

DATE_PATTERN = r"^(\d{4}-\d{2}-\d{2})?$"


def date_params() -> dict[str, Param]:
    """The trigger form: both empty on a schedule."""
    return {
        "date": date_field("Date", "Partition to score, as YYYY-MM-DD. Empty: the run's own date."),
        "through": date_field(
            "Through", "Last date of a range that begins at Date. Empty: that one date."
        ),
    }


def date_field(title: str, description: str) -> Param:
    """A date, or nothing."""
    return text(title, description, pattern=DATE_PATTERN)


def dates_of(context: Mapping[str, Any], *, timezone: str = "UTC") -> tuple[dt.date, ...]:
    """Dates of an Airflow run: parameter > partition key > asset event > logical date.

    The logical date counts as that of `timezone`: two in the morning in Tokyo is another day in
    UTC.

    Raises:
        ConfigError: none of them says a date, or the events say dates that are no range.
    """
    run, params = context["dag_run"], context["params"]
    named = params.get("date") or params.get("through") or run.partition_key
    events = _events(context.get("triggering_asset_events"))
    if not named and events:
        return _dates_of_events(events)
    logical = run.logical_date
    return resolve_dates(
        params,
        partition_key=run.partition_key,
        logical_date=logical.astimezone(ZoneInfo(timezone)) if logical is not None else None,
    )


def _events(triggering: Any) -> list[Any]:
    return [event for events in dict(triggering or {}).values() for event in events]


def _dates_of_events(events: Iterable[Any]) -> tuple[dt.date, ...]:
    """All dates that the events of a run name; Airflow starts one run for events that wait."""
    days = set()
    for event in events:
        key = (event.extra or {}).get("date") or getattr(event, "partition_key", None)
        if not key:
            raise ConfigError(
                "no date: an asset event without `date` in its extra and without partition key "
                'started this run; let its sender add {"date": "YYYY-MM-DD"}, or trigger the DAG '
                "with that parameter"
            )
        days.add(parse_date(str(key), name="asset event's date"))
    first, last = min(days), max(days)
    if (last - first).days + 1 != len(days):
        named = ", ".join(sorted(day.isoformat() for day in days))
        raise ConfigError(
            f"the asset events of this run name {named}, which is no range of dates; trigger the "
            "DAG once for each of them"
        )
    return resolve_dates({"date": first.isoformat(), "through": last.isoformat()})
