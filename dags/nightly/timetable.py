"""From a task file's section `schedule` to what Airflow starts a DAG by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import (
    Asset,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    PartitionedAssetTimetable,
)

if TYPE_CHECKING:
    from schemas.schedule import ScheduleConfig

KEY_FORMAT = "%Y-%m-%d"


def timetable_of(schedule: ScheduleConfig | None) -> Any:
    """A timetable, the list of the asset that is waited for, or None for runs by hand only.

    Never a plain cron string, which in Airflow 3 means the day it fires with an empty interval.

    Raises:
        AirflowTimetableInvalid: the cron expression is none.
    """
    if schedule is None:
        return None
    if schedule.asset is not None:
        asset = Asset(schedule.asset)
        return [asset] if schedule.by == "interval" else PartitionedAssetTimetable(assets=asset)
    if schedule.cron is None:
        return None
    timetable = (
        CronDataIntervalTimetable(schedule.cron, timezone=schedule.timezone)
        if schedule.by == "interval"
        else CronPartitionTimetable(
            schedule.cron,
            timezone=schedule.timezone,
            run_offset=schedule.run_offset,
            key_format=KEY_FORMAT,
        )
    )
    timetable.validate()
    return timetable
