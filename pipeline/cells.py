"""One value of a row as rules see it: alike from CSV text, JSON values and Parquet types."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

# Whole numbers up to here are exact as floats; beyond, neighbours fall together.
_MAX_EXACT_FLOAT = 2**53
_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0*)?")  # data frames write 5.0 beside a missing value
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_MAX_NUMBER_CHARS = 400  # the longest float written out has 309 digits before its point


def is_missing(value: Any) -> bool:
    """Whether a value is null: None, or the NaN that data frames write instead."""
    return value is None or (isinstance(value, float) and value != value)  # noqa: PLR0124 - NaN


def id_text(value: Any) -> str | None:
    """The text of an id, None where there is none.

    Whole numbers give their decimals, also where a column of integers drifted to floats because
    of its nulls, as data frames do.
    """
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_FLOAT:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def cell_text(value: Any) -> str | None:
    """The text of a value as rules compare it, None for a missing or blank one."""
    if isinstance(value, str):
        return value.strip() or None
    if is_missing(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return id_text(value) or str(value)


def integer_in(text: str) -> float | None:
    """The whole number that a text is; as a float, for that is what it is compared with."""
    is_whole = len(text) <= _MAX_NUMBER_CHARS and _INTEGER.fullmatch(text)
    return number_in(text) if is_whole else None


def number_in(text: str) -> float | None:
    """The finite number that a text is."""
    if len(text) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def boolean_in(text: str) -> float | None:
    """1 or 0 for true or false, in any case or as those numbers."""
    found = _BOOLEANS.get(text.lower())
    return None if found is None else float(found)


def moment_in(text: str) -> dt.datetime | None:
    """The time in UTC that an ISO 8601 text is; without a zone it is one in UTC, as is a date."""
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):  # the second: a zone that leads out of the years 1 to 9999
        return None


def day_in(text: str) -> dt.datetime | None:
    """The date that an ISO 8601 text is, at midnight; frames write dates as such times."""
    moment = moment_in(text)
    if moment is None or moment.time() != dt.time.min:
        return None
    return moment
