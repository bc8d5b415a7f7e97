from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.column_rules import ColumnRules
from schemas.errors import ConfigError
from schemas.task import ColumnRule, ColumnType, ContractConfig, DriftRule

DAY = dt.date(2026, 11, 28)


def broken(value, *, repeated=False, date=DAY, **config):
    rules = ColumnRules("x", ColumnRule(**config))
    rule = rules.first_broken(rules.cell(value, repeated, date))
    return None if rule is None else (rule.name, rule.reason.value)


@pytest.mark.parametrize("missing", [None, "", "  ", float("nan")])
def test_a_missing_value_breaks_required_alone(missing):
    everything = {
        "type": "integer",
        "allowed": ("5",),
        "pattern": "5",
        "min_chars": 2,
        "unique": True,
    }
    assert broken(missing, **everything) is None
    assert broken(missing, required=True, **everything) == ("required", "missing_value")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["a", 5, True], [[1], {"a": 1}, b"x"]),
        ("integer", [5, "5", 5.0, "5.0"], ["5.5", 5.5, "five", [5]]),
        ("number", [5, "5.5", 5.5, "1e3"], ["five", "nan", True, float("inf")]),
        ("boolean", [True, "true", "False", 1, "0"], ["maybe", 2]),
        ("date", ["2026-11-28", DAY], ["28.11.2026", "2026-11-28T10:00:00Z"]),
        (
            "timestamp",
            ["2026-11-28", "2026-11-28T10:00:00Z", dt.datetime(2026, 11, 28, 10)],
            ["yesterday", "10:00"],
        ),
    ],
)  # fmt: skip
def test_types_are_checked_alike_whatever_the_file(kind, good, bad):
    assert [value for value in good if broken(value, type=kind)] == []
    assert [broken(value, type=kind) for value in bad] == [("type", "wrong_type")] * len(bad)


def test_allowed_and_pattern_look_at_the_whole_value():
    assert broken("web", allowed=("web", "app")) is None
    assert broken("webapp", allowed=("web", "app")) == ("allowed", "value_not_allowed")
    assert broken("AB-12", pattern="[A-Z]{2}-[0-9]+") is None
    assert broken("AB-12x", pattern="[A-Z]{2}-[0-9]+") == ("pattern", "value_not_allowed")


def test_ranges_of_lengths_and_numbers_include_their_bounds():
    assert broken("abc", min_chars=3, max_chars=3) is None
    assert broken("ab", min_chars=3) == ("min_chars", "value_out_of_range")
    assert broken("abcd", max_chars=3) == ("max_chars", "value_out_of_range")
    assert broken("5", min_value=5, max_value=5) is None
    assert broken("4.9", min_value=5) == ("min_value", "value_out_of_range")
    assert broken(5.1, max_value=5) == ("max_value", "value_out_of_range")


def test_bounds_imply_the_type():
    assert broken("five", max_value=5) == ("type", "wrong_type")
    assert broken("yesterday", max_days_before=5) == ("type", "wrong_type")


@pytest.mark.parametrize(
    ("moment", "rule"),
    [
        ("2026-11-26T23:59:59Z", "max_days_before"),
        ("2026-11-27", None),
        ("2026-11-28T23:59", None),
        ("2026-11-29T01:00+02:00", None),  # still the 28th in UTC
        ("2026-11-29T00:00", "max_days_after"),
    ],
)
def test_days_around_the_date_are_counted_in_utc(moment, rule):
    found = broken(moment, max_days_before=1, max_days_after=0)
    assert (found and found[0]) == rule
    assert broken(moment, date=None, max_days_before=1, max_days_after=0) is None


def test_a_repeated_value_breaks_unique_last():
    assert broken("a", unique=True) is None
    assert broken("a", repeated=True, unique=True) == ("unique", "duplicate_value")
    assert broken("a", repeated=True, unique=True, allowed=("b",)) == (
        "allowed",
        "value_not_allowed",
    )


def test_bounds_that_a_type_does_not_have_are_an_error():
    with pytest.raises(ConfigError, match=r"columns.x: min_value and max_value need type number"):
        ColumnRules("x", ColumnRule(type="date", max_value=5))
    with pytest.raises(ConfigError, match=r"need type timestamp or date, got string"):
        ColumnRules("x", ColumnRule(type="string", max_days_after=5))


def test_a_rule_says_what_it_expects_and_where_it_counts():
    config = ColumnRule(allowed=tuple(map(str, range(14))), max_value=1e6, max_days_after=1)
    with pytest.raises(ConfigError):
        ColumnRules("x", config)  # a number is no time
    rules = {
        rule.key: rule.expected
        for column in (
            ColumnRules("x", config.model_copy(update={"max_days_after": None})),
            ColumnRules("y", ColumnRule(max_days_before=7, min_value=None)),
        )
        for rule in column.rules
    }
    assert rules["x:allowed"].endswith("10, 11 and 2 more")
    assert rules["x:max_value"] == "be at most 1,000,000"
    assert rules["y:max_days_before"] == "be at most 7 days before the date"
    assert set(rules) == {"x:type", "x:allowed", "x:max_value", "y:type", "y:max_days_before"}


@given(
    st.one_of(st.text(max_size=8), st.integers(-20, 20), st.floats(), st.none(), st.booleans()),
    st.booleans(),
)
def test_the_first_broken_rule_is_the_first_whose_measure_is_not_as_demanded(value, repeated):
    config = ColumnRule(
        type="integer", required=True, allowed=tuple(map(str, range(9))), min_value=2, max_value=7,
        min_chars=1, unique=True,
    )  # fmt: skip
    rules = ColumnRules("x", config)
    cell = rules.cell(value, repeated, DAY)
    measured = [(rule, rule.measure(cell)) for rule in rules.rules]
    broken_rules = [r for r, found in measured if found is not None and not r.demand.test()(found)]
    assert rules.first_broken(cell) == (broken_rules[0] if broken_rules else None)


@given(st.integers(2, 7), st.sampled_from([int, float, str, "  {} ".format, "{}.0".format]))
def test_a_good_value_is_good_in_every_form(number, form):
    assert broken(form(number), type="integer", required=True, min_value=2, max_value=7) is None


def test_the_page_about_the_contract_names_every_setting_and_its_example_is_one():
    page = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text("utf-8")
    example = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])["contract"]
    contract = ContractConfig.model_validate(example)
    assert set(example) == set(ContractConfig.model_fields)
    assert set(example["drift"]) == set(DriftRule.model_fields)
    for column, config in contract.columns.items():
        ColumnRules(column, config)
    for name in [*ColumnRule.model_fields, *ContractConfig.model_fields]:
        assert f"`{name}`" in page or f"`{name}: " in page or f"{name}:" in page
    for kind in get_args(ColumnType):
        assert f"`{kind}`" in page
