from __future__ import annotations

from pipeline.column_rules import Between, OneOf
from pipeline.engines.quality_pages import CheckedExpectation
from pipeline.expectations import Expected
from pipeline.partition_profile import PartitionProfile
from pipeline.rows import RawRow, Rejected
from pipeline.validate import Validator
from pipeline.verdict import problems, warnings
from schemas.load import parse_task
from schemas.reasons import Reason, Stage

RAW = {
    "name": "tickets",
    "data": {"incoming": "x", "id_column": "id", "text_columns": ["body"]},
    "contract": {"columns": {"stars": {"allowed": ["5"]}}},
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


def checked(kind, key, *, column=None, critical=True, passed=False, observed="40 %", count=0):
    demand = OneOf(("5",)) if kind == "values" else Between(low=1)
    asked = Expected(kind, key, column, column, demand, "be one of 5", critical)
    return CheckedExpectation(asked, passed, observed, count, 0.5)


def rejected_five_times():
    """A profile and a validator that have seen five rows with a value that is not allowed."""
    task = parse_task(RAW, source="test")
    profile, validator = PartitionProfile(task), Validator(task.data, task.contract)
    for number in range(5):
        row = RawRow("a.csv", number, {"id": f"r{number}", "body": "b", "stars": "my secret"}, b"")
        profile.add(row, validator.check(row))
    broken = Rejected(None, "a.csv", 5, Stage.READ, Reason.INVALID_JSON, "", b"")
    profile.add(broken, broken)
    return profile, validator


def test_a_problem_names_column_rule_how_many_and_three_examples():
    profile, validator = rejected_five_times()
    found = problems(
        [checked("values", "stars:allowed", column="stars", count=5)], profile, validator
    )
    assert found == (
        "column 'stars', allowed: expected all values to be one of 5, got 40 %, 5 rows are not so "
        "(such as r0, r1, r2)",
    )


def test_too_many_rejects_are_told_by_reason():
    profile, validator = rejected_five_times()
    (found,) = problems([checked("mean", "max_reject_fraction")], profile, validator)
    assert found == (
        "max_reject_fraction: expected be one of 5, got 40 %: 6 of 6 rows rejected, "
        "5 value_not_allowed (such as r0, r1, r2), 1 invalid_json (such as a.csv:5); "
        "mend the data, or raise contract.max_reject_fraction"
    )


def test_a_reason_that_stops_has_its_examples():
    profile, validator = rejected_five_times()
    (found,) = problems([checked("values", "invalid_json", count=1)], profile, validator)
    assert found.endswith("got 40 %, 1 row is not so (such as a.csv:5)")


def test_warnings_and_what_is_met_are_no_problems():
    profile, validator = rejected_five_times()
    fine = checked("rows", "min_rows", passed=True)
    warning = checked("values", "stars:allowed", column="stars", critical=False, count=5)
    assert problems([fine, warning], profile, validator) == ()
    (line,) = warnings([fine, warning], validator)
    assert line.startswith("column 'stars', allowed: ")
    assert line.endswith("(such as r0, r1, r2)")


def test_a_problem_that_a_setting_mends_says_which():
    profile, validator = rejected_five_times()
    (found,) = problems([checked("rows", "min_rows", observed="0")], profile, validator)
    assert found == "min_rows: expected be one of 5, got 0; set contract.min_rows=0 for quiet days"
