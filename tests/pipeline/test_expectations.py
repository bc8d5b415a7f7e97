from __future__ import annotations

from pipeline.column_rules import Between, OneOf
from pipeline.drift import DriftBounds
from pipeline.expectations import expectations
from pipeline.partition_profile import PartitionProfile
from pipeline.rows import Rejected
from schemas.load import parse_task
from schemas.reasons import Reason, Stage

DRIFT = DriftBounds(("1", "2", "3"), (50.5, 199.5), {"body": (0.0, 0.25), "gone": (0.0, 0.5)})


def asked(contract, *, rows=1, drift=DRIFT, id_column="id"):
    raw = {
        "name": "tickets",
        "data": {"incoming": "x", "id_column": id_column, "text_columns": ["body"]},
        "contract": {"max_reject_fraction": 0.25, **contract},
        "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
    }
    task = parse_task(raw, source="test")
    profile = PartitionProfile(task)
    rejected = Rejected(None, "a", 0, Stage.READ, Reason.INVALID_JSON, "", b"")
    for _ in range(rows):
        profile.add(rejected, rejected)
    profile._missing[""] = rows  # as if they had been read
    return {each.key: each for each in expectations(task, profile, drift)}


def test_what_every_task_expects():
    found = asked({})
    assert {key: each.sentence for key, each in found.items()} == {
        "min_rows": "at least 1 row",
        "max_reject_fraction": "at most 25 % of rows to be rejected",
        "truncated_file": "all rows to be free of truncated_file",
        "missing_text": "at least 75 % of values to hold a text that is not blank",
        "text_too_long": "at least 75 % of values to have at most 1,000,000 characters",
        "missing_id": "at least 75 % of values to be present",
        "duplicate_id": "at least 75 % of values to be unique",
        "drift of volume": "50 to 200 rows after the 3 dates before",
        "drift of missing values": "75 to 100 % of values to be present after the 3 dates before",
    }
    warnings = {key for key, each in found.items() if not each.critical}
    assert warnings == {"duplicate_id", "drift of volume", "drift of missing values"}
    assert found["drift of missing values"].demand == Between(0.75, 1.0)


def test_rules_are_asked_as_their_severity_says():
    columns = {
        "a": {"allowed": ["x"]},
        "b": {"required": True, "severity": "warn"},
        "c": {"max_chars": 5, "severity": "stop"},
    }
    found = asked({"columns": columns, "drift": {"severity": "stop"}})
    asked_as = {key: (found[key].critical, found[key].mostly) for key in found if ":" in key}
    assert asked_as == {
        "a:allowed": (True, 0.75), "b:required": (False, 1.0), "c:max_chars": (True, 1.0),
    }  # fmt: skip
    assert found["a:allowed"].sentence == "at least 75 % of values to be one of x"
    assert found["c:max_chars"].demand == Between(high=5)
    assert found["drift of volume"].critical


def test_languages_may_always_be_those_that_cannot_be_told():
    for severity, as_asked in {
        "reject": (True, 0.75), "stop": (True, 1.0), "warn": (False, 1.0), "review": (False, 0.75),
    }.items():  # fmt: skip
        language = asked({"languages": {"allowed": ["en"], "severity": severity}})["lang:allowed"]
        assert language.demand == OneOf(("en", "und"))
        assert (language.critical, language.mostly) == as_asked


def test_a_partition_without_rows_is_only_counted():
    assert list(asked({}, rows=0)) == ["min_rows", "drift of volume"]
    assert list(asked({}, rows=0, drift=DriftBounds())) == ["min_rows"]


def test_without_id_column_nothing_is_asked_of_ids():
    assert "missing_id" not in asked({}, id_column=None)
