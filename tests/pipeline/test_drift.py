from __future__ import annotations

import datetime as dt

import pytest

from pipeline.drift import PROFILE_FILE, DriftBounds, drift_bounds, read_history
from schemas.profiles import PartitionStatistics
from schemas.task import DriftRule


def profile(day, rows=100, **null_share):
    return PartitionStatistics(
        task="tickets", date=day, contract_version="1", rows=rows, rejected=0, null_share=null_share
    )


def test_history_is_the_last_dates_before_that_have_a_profile_whenever_they_were_made(tmp_path):
    for day in ("2026-11-29", "2026-11-27", "2026-11-28", "2026-11-20", "2026-11-25"):
        profile(day).write(tmp_path / f"date={day}" / PROFILE_FILE)
    (tmp_path / "date=2026-11-26").mkdir()
    (tmp_path / "date=2026-11-24").mkdir()
    (tmp_path / "date=2026-11-24" / PROFILE_FILE).write_text('{"task": "of an older version"}')
    history = read_history(tmp_path, before=dt.date(2026, 11, 28), partitions=2)
    assert [each.date for each in history] == ["2026-11-25", "2026-11-27"]
    more = read_history(tmp_path, before=dt.date(2026, 11, 28), partitions=9)
    assert [each.date for each in more] == ["2026-11-20", "2026-11-25", "2026-11-27"]
    assert read_history(tmp_path / "none", before=dt.date(2026, 11, 28), partitions=9) == []


def test_volume_goes_by_the_median_and_null_shares_by_the_mean():
    history = [profile("1", 100, a=0.0), profile("2", 200, a=0.3), profile("3", 5000, a=0.6)]
    bounds = drift_bounds(history, DriftRule(max_volume_factor=4, max_null_share_change=0.4))
    assert bounds.dates == ("1", "2", "3")
    assert bounds.rows == (50, 800)
    assert bounds.null_share == {"a": (0.0, pytest.approx(0.7))}


def test_too_few_dates_say_nothing():
    rule = DriftRule(min_partitions=3)
    assert drift_bounds([profile("1", a=0.5)] * 2, rule) == DriftBounds(("1", "1"))
    known_twice = [profile("1", a=0.5), profile("2", a=0.5), profile("3", b=0.5)]
    assert drift_bounds(known_twice, rule).null_share == {}


def test_a_median_of_no_rows_bounds_nothing():
    assert drift_bounds([profile("1", rows=0)] * 3, DriftRule()).rows is None
