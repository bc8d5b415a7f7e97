from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cells import boolean_in, cell_text, day_in, id_text, integer_in, moment_in, number_in

UTC = dt.UTC


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a ", "a"), (12, "12"), (12.0, "12"), (1.5, None), (True, None), ("  ", None),
        (None, None), (float("nan"), None), (2.0**60, None),
    ],
)  # fmt: skip
def test_id_text(value, text):
    assert id_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a ", "a"), (" ", None), (None, None), (float("nan"), None), (5, "5"), (5.0, "5"),
        (1.5, "1.5"), (True, "true"), (Decimal("1.50"), "1.50"), (2.0**60, str(2.0**60)),
        (dt.date(2026, 11, 28), "2026-11-28"),
        (dt.datetime(2026, 11, 28, 10, tzinfo=UTC), "2026-11-28 10:00:00+00:00"),
    ],
)  # fmt: skip
def test_cell_text(value, text):
    assert cell_text(value) == text


@given(st.integers())
def test_a_whole_number_is_alike_from_json_and_csv(number):
    assert cell_text(number) == cell_text(f" {number} ") == str(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5), ("-5.00", -5), ("+7", 7), ("5.", 5), ("5.5", None), ("1e3", None), ("٣", None),
        ("1_000", None), ("", None), ("9" * 401, None),
    ],
)  # fmt: skip
def test_integer_in(text, number):
    assert integer_in(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5), (".5", 0.5), ("-1.5e-3", -0.0015), ("nan", None), ("inf", None), ("1e999", None),
        ("1,5", None), ("1_0", None), ("five", None),
    ],
)  # fmt: skip
def test_number_in(text, number):
    assert number_in(text) == number


@pytest.mark.parametrize(
    ("text", "truth"), [("true", 1), ("False", 0), ("1", 1), ("0", 0), ("yes", None), ("2", None)]
)
def test_boolean_in(text, truth):
    assert boolean_in(text) == truth


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-28", dt.datetime(2026, 11, 28, tzinfo=UTC)),
        ("2026-11-28T10:30Z", dt.datetime(2026, 11, 28, 10, 30, tzinfo=UTC)),
        ("2026-11-28 10:30:00.123456789", dt.datetime(2026, 11, 28, 10, 30, 0, 123456, tzinfo=UTC)),
        ("2026-11-29T01:00+02:00", dt.datetime(2026, 11, 28, 23, tzinfo=UTC)),
        ("28.11.2026", None), ("2026-13-01", None), ("0001-01-01T00:00+02:00", None), ("", None),
    ],
)  # fmt: skip
def test_moment_in_utc_without_a_zone(text, moment):
    assert moment_in(text) == moment


def test_day_in_takes_dates_and_the_midnights_that_frames_write():
    day = dt.datetime(2026, 11, 28, tzinfo=UTC)
    assert day_in("2026-11-28") == day_in("2026-11-28 00:00:00") == day
    assert day_in("2026-11-28T10:00") is None
