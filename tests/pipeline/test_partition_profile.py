from __future__ import annotations

import datetime as dt
import tracemalloc

import numpy as np
import pytest

from pipeline.flow import Prepared
from pipeline.partition_profile import (
    LANGUAGE,
    OUTCOME,
    REJECTED,
    REPEATED_ID,
    TEXT_CHARS,
    PartitionProfile,
    chars_of,
)
from pipeline.rows import RawRow, Record, Rejected
from schemas.load import parse_task
from schemas.reasons import Reason, Stage

DAY = dt.date(2026, 11, 28)
RAW = {
    "name": "tickets",
    "data": {"incoming": "x", "id_column": "id", "text_columns": ["subject", "body"]},
    "contract": {
        "columns": {
            "channel": {"allowed": ["web"], "required": True},
            "stars": {"type": "integer", "min_value": 1, "max_value": 5},
            "created": {"max_days_before": 7},
        }
    },
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


@pytest.fixture
def profile():
    return PartitionProfile(parse_task(RAW, source="test"), DAY)


def raw(number, *, repeated=(), **values):
    return RawRow("a.csv", number, {"id": str(number), **values}, b"", repeated)


def kept(row, lang="en"):
    record = Record(row.values["id"], "a.csv", row.source_row, ("x",), row.values, b"")
    return Prepared(record, ("x",), "0" * 32, lang, (), False)


def rejected(row, reason):
    return Rejected(None, "a.csv", row.source_row, Stage.VALIDATE, reason, "", b"")


def found(profile, name):
    column = profile.measured[name]
    if hasattr(column, "codes"):
        return [None if code < 0 else column.categories[code] for code in column.codes]
    return [None if np.isnan(value) else float(value) for value in column.values]


def test_a_profile_measures_what_the_rules_look_at(profile):
    rows = [
        raw(0, subject="ab", body="cde", channel="web", stars=3, created="2026-11-27"),
        raw(1, repeated=("id",), subject=" ", body="cde", channel="my secret", stars="x"),
        raw(2, subject=None, body=None),
    ]
    profile.add(rows[0], kept(rows[0]))
    profile.add(rows[1], rejected(rows[1], Reason.DUPLICATE_ID))
    profile.add(rows[2], rejected(rows[2], Reason.MISSING_TEXT))
    broken = rejected(raw(3), Reason.INVALID_JSON)
    profile.add(broken, broken)
    assert found(profile, REJECTED) == [0, 1, 1, 1]
    assert found(profile, OUTCOME) == ["kept", "duplicate_id", "missing_text", "invalid_json"]
    assert found(profile, LANGUAGE) == ["en", None, None, None]
    assert found(profile, REPEATED_ID) == ["first", "repeated", "first", None]
    assert found(profile, TEXT_CHARS) == [6, 3, 0, None]
    assert found(profile, chars_of("subject")) == [2, None, None, None]
    assert found(profile, "channel: presence") == [1, 1, 0, None]
    assert found(profile, "channel: value") == ["web", "(another)", None, None]
    assert found(profile, "stars: type") == ["integer", "(another)", None, None]
    assert found(profile, "stars: number") == [3, None, None, None]
    assert found(profile, "created: days") == [-1, None, None, None]


def test_a_profile_counts_reasons_with_examples_and_missing_values(profile):
    for number in range(5):
        row = raw(number, channel="web" if number else None)
        profile.add(row, rejected(row, Reason.MISSING_TEXT))
    broken = rejected(raw(5), Reason.INVALID_JSON)
    profile.add(broken, broken)
    assert (profile.rows, profile.rejected) == (6, 6)
    assert profile.by_reason == {"missing_text": 5, "invalid_json": 1}
    assert profile.examples["missing_text"] == ["a.csv:0", "a.csv:1", "a.csv:2"]
    assert profile.null_share == {
        "id": 0, "subject": 1, "body": 1, "channel": 0.2, "stars": 1, "created": 1,
    }  # fmt: skip


def test_a_language_that_was_rejected_counts_as_another(profile):
    row = raw(0)
    profile.add(row, rejected(row, Reason.LANGUAGE_NOT_ALLOWED))
    assert found(profile, LANGUAGE) == ["(another)"]


def test_without_rows_there_is_no_share(profile):
    assert profile.null_share == {}


def test_failure_45_a_row_takes_some_forty_bytes_whatever_its_text_and_id(profile):
    """Complete results and lists of values took more memory than the rows themselves."""
    rows = [raw(n, body="word " * 200, channel="web", stars="3") for n in range(1000)]
    outcomes = [kept(row) for row in rows]
    profile.add(rows[0], outcomes[0])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(20):
        for row, outcome in zip(rows, outcomes, strict=True):
            profile.add(row, outcome)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert profile.nbytes == 20_001 * 42
    assert grown < 20_000 * 42 * 1.3  # arrays grow by an eighth ahead of need
