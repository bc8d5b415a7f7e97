"""Which dates a run scores: window maths of the timetables, keys, events, and none at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk import Asset, PartitionedAssetTimetable, timezone
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import TimeRestriction

from dags import nightly_scoring
from dags.nightly.dates import dates_of
from dags.nightly.timetable import timetable_of
from schemas.errors import ConfigError
from schemas.schedule import ScheduleConfig

NOVEMBER_28 = date(2026, 11, 28)


def context(*, params=None, key=None, logical_date=None, events=()):
    run = SimpleNamespace(partition_key=key, logical_date=logical_date)
    return {
        "params": {"date": "", "through": "", **(params or {})},
        "dag_run": run,
        "triggering_asset_events": {Asset("x-in://t"): list(events)} if events else {},
    }


def event(**extra):
    return SimpleNamespace(extra=extra, partition_key=None)


def first_run(schedule, *, after):
    """What the scheduler would start first, once `after` has passed."""
    timetable = coerce_to_core_timetable(timetable_of(schedule))
    earliest = timezone.coerce_datetime(after)
    asked = TimeRestriction(earliest=earliest, latest=None, catchup=True)
    return timetable.next_dagrun_info_v2(last_dagrun_info=None, restriction=asked)


def test_failure_17_the_interval_of_a_night_is_the_day_that_has_ended():
    """Airflow's plain cron string has an interval of no length, on the day it fires."""
    schedule = ScheduleConfig(cron="0 2 * * *")
    run = first_run(schedule, after=datetime(2026, 11, 28, 2, tzinfo=UTC))
    assert run.data_interval.start == datetime(2026, 11, 28, 2, tzinfo=UTC)
    assert run.data_interval.end == run.run_after == datetime(2026, 11, 29, 2, tzinfo=UTC)
    assert dates_of(context(logical_date=run.logical_date)) == (NOVEMBER_28,)


def test_failure_17_the_partition_of_a_night_is_the_day_that_has_ended():
    schedule = ScheduleConfig(cron="0 2 * * *", by="partition")
    run = first_run(schedule, after=datetime(2026, 11, 29, 2, tzinfo=UTC))
    assert run.run_after == datetime(2026, 11, 29, 2, tzinfo=UTC)
    assert run.partition_key == "2026-11-28"
    assert dates_of(context(key=run.partition_key)) == (NOVEMBER_28,)


def test_run_offset_chooses_the_partition():
    schedule = ScheduleConfig(cron="0 2 * * *", by="partition", run_offset=0)
    run = first_run(schedule, after=datetime(2026, 11, 29, 2, tzinfo=UTC))
    assert run.partition_key == "2026-11-29"


def test_failure_17_a_date_is_that_of_the_schedules_time_zone():
    """Two in the morning in Tokyo is still the day before in UTC."""
    schedule = ScheduleConfig(cron="0 2 * * *", timezone="Asia/Tokyo")
    run = first_run(schedule, after=datetime(2026, 11, 27, 17, tzinfo=UTC))
    assert run.logical_date == datetime(2026, 11, 27, 17, tzinfo=UTC)
    found = dates_of(context(logical_date=run.logical_date), timezone="Asia/Tokyo")
    assert found == (NOVEMBER_28,)


def test_schedule_by_an_asset():
    assert timetable_of(ScheduleConfig(asset="x-in://tickets")) == [Asset("x-in://tickets")]
    partitioned = timetable_of(ScheduleConfig(asset="x-in://tickets", by="partition"))
    assert isinstance(partitioned, PartitionedAssetTimetable)
    assert partitioned.asset_condition == Asset("x-in://tickets")


@pytest.mark.parametrize("schedule", [None, ScheduleConfig(cron=None, pool="gpu")])
def test_no_cron_no_schedule(schedule):
    assert timetable_of(schedule) is None


def test_failure_18_a_run_without_any_date_fails_for_good(monkeypatch):
    """Neither a manual run nor one by an asset has a logical date; today would be a guess."""
    monkeypatch.setattr(nightly_scoring, "get_current_context", context)
    with pytest.raises(AirflowFailException, match="no date: this run has no `date` parameter"):
        nightly_scoring.dates_of_run.function()


def test_failure_18_an_event_that_names_no_date_fails_for_good(monkeypatch):
    found = context(events=[event(rows=3)], logical_date=datetime(2026, 11, 1, tzinfo=UTC))
    monkeypatch.setattr(nightly_scoring, "get_current_context", lambda: found)
    with pytest.raises(AirflowFailException, match="asset event without `date` in its extra"):
        nightly_scoring.dates_of_run.function()


def test_failure_18_the_date_of_an_event_wins_over_the_logical_date():
    found = context(
        events=[event(date="2026-11-28")], logical_date=datetime(2026, 12, 1, tzinfo=UTC)
    )
    assert dates_of(found) == (NOVEMBER_28,)


def test_the_partition_key_of_an_event_is_its_date():
    keyed = SimpleNamespace(extra=None, partition_key="2026-11-28")
    assert dates_of(context(events=[keyed])) == (NOVEMBER_28,)


def test_parameter_and_partition_key_win_over_an_event():
    events = [event(date="2026-11-01")]
    assert dates_of(context(events=events, key="2026-11-28")) == (NOVEMBER_28,)
    named = context(events=events, key="2026-11-02", params={"date": "2026-11-28"})
    assert dates_of(named) == (NOVEMBER_28,)


def test_events_that_waited_together_are_one_range():
    events = [event(date=f"2026-11-{day}") for day in (27, 26, 28, 27)]
    assert [day.day for day in dates_of(context(events=events))] == [26, 27, 28]


def test_events_of_dates_that_are_no_range_are_refused():
    events = [event(date="2026-11-20"), event(date="2026-11-28")]
    with pytest.raises(ConfigError, match="2026-11-20, 2026-11-28, which is no range"):
        dates_of(context(events=events))


def test_event_date_that_is_none_is_named():
    with pytest.raises(ConfigError, match="asset event's date: expected a date as YYYY-MM-DD"):
        dates_of(context(events=[event(date="yesterday")]))
