"""Dates of a run: said from outside, by precedence, never by a clock."""

from __future__ import annotations

import datetime as dt

import pytest

from schemas.errors import ConfigError
from schemas.partition import date_range, parse_date, resolve_dates

MOMENT = dt.datetime(2026, 11, 30, 2, 0, tzinfo=dt.UTC)


def day(number: int) -> dt.date:
    return dt.date(2026, 11, number)


def test_a_parameter_wins_over_partition_key_and_logical_date() -> None:
    """FAILURES row 18: the window is resolved by precedence."""
    params = {"date": "2026-11-28", "through": ""}
    found = resolve_dates(params, partition_key="2026-11-29", logical_date=MOMENT)
    assert found == (day(28),)


def test_a_partition_key_wins_over_the_logical_date() -> None:
    found = resolve_dates({"date": ""}, partition_key="2026-11-29", logical_date=MOMENT)
    assert found == (day(29),)


def test_the_logical_date_comes_last() -> None:
    assert resolve_dates({}, logical_date=MOMENT) == (day(30),)


def test_without_any_date_the_run_fails() -> None:
    """FAILURES row 18: a manual run without a date must not mean some day or other."""
    with pytest.raises(ConfigError, match=r'no date.*trigger it with {"date"'):
        resolve_dates({"date": None})


def test_a_range_holds_both_ends() -> None:
    params = {"date": "2026-11-28", "through": "2026-11-30"}
    assert resolve_dates(params) == (day(28), day(29), day(30))


def test_an_end_without_a_start_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"params\.through is '2026-11-30' but params\.date"):
        resolve_dates({"through": "2026-11-30"}, logical_date=MOMENT)


def test_a_backward_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="backwards: 2026-11-29 to 2026-11-28"):
        date_range(day(29), day(28))


def test_a_range_of_more_than_a_month_is_refused() -> None:
    assert len(date_range(day(1), dt.date(2026, 12, 1))) == 31
    with pytest.raises(ConfigError, match="has 32 days, at most 31"):
        date_range(day(1), dt.date(2026, 12, 2))


@pytest.mark.parametrize("text", ["28.11.2026", "2026-13-01", "yesterday", "2026-11-28T00:00"])
def test_what_is_no_date_is_named_with_its_setting(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--date: expected a date as YYYY-MM-DD, got"):
        parse_date(text, name="--date")
