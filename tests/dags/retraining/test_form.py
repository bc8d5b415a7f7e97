"""The form of the DAG `retrain` against its own schema's rules, as the web server applies them."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import ParamValidationError

from dags.retraining.form import MAX_APPROVAL_HOURS, MAX_REASON_CHARS, form
from schemas.task import Variant

TASKS = ("reviews", "tickets")
FIELDS = form(TASKS)
TEXTS = sorted(name for name, field in FIELDS.items() if field.schema["type"] != "string"
               and "string" in field.schema["type"])  # fmt: skip


def filled(**values):
    """What the web server makes of a filled form; it raises where it refuses one."""
    params = ParamsDict(form(TASKS))
    params.update(values)
    return params.validate()


@pytest.mark.parametrize("name", FIELDS)
def test_failure_19_every_default_is_plain_and_passes_its_own_rules(name):
    field = FIELDS[name]
    kind, *null = [field.schema["type"]] if isinstance(field.schema["type"], str) else (
        field.schema["type"]
    )  # fmt: skip
    assert null in ([], ["null"])
    assert type(field.value) is {"string": str, "integer": int, "boolean": bool}[kind]
    assert field.resolve() == field.value
    # An empty field that may not be null counts as missing and blocks the form's button.
    assert bool(field.value) or kind != "string" or null == ["null"]
    assert None not in field.schema.get("enum", [])
    assert len(field.schema["title"]) > 2
    assert field.schema["section"]
    assert field.description.endswith(".")


@pytest.mark.parametrize("name", TEXTS)
def test_failure_19_a_text_that_somebody_emptied_is_null_and_passes(name):
    assert filled(**{name: None})[name] is None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("task", "nobody", r"'nobody' is not one of \['reviews', 'tickets'\]"),
        ("task", None, "None is not of type 'string'"),
        ("labelled", 3, "3 is not of type 'string', 'null'"),
        ("reason", "x" * (MAX_REASON_CHARS + 1), "is too long"),
        ("backbone", "x" * 501, "is too long"),
        ("epochs", -1, "-1 is less than the minimum of 0"),
        ("epochs", 51, "51 is greater than the maximum of 50"),
        ("epochs", 2.5, "2.5 is not of type 'integer'"),
        ("epochs", "", "'' is not of type 'integer'"),
        ("batch_size", 5000, "greater than the maximum of 4096"),
        ("learning_rate", "fast", "'fast' does not match"),
        ("learning_rate", "-1e-4", "'-1e-4' does not match"),
        ("learning_rate", 0.001, "not of type 'string', 'null'"),
        ("frozen_layers", -2, "less than the minimum of -1"),
        ("seed", None, "None is not of type 'integer'"),
        ("distil", "yes", "'yes' is not of type 'boolean'"),
        ("teacher", 1, "not of type 'string', 'null'"),
        ("prune", None, "None is not of type 'boolean'"),
        ("precision", "int3", "'int3' is not one of"),
        ("approval", None, "None is not of type 'boolean'"),
        ("approval_hours", 0, "less than the minimum of 1"),
        ("approval_hours", MAX_APPROVAL_HOURS + 1, "greater than the maximum of 720"),
    ],
)
def test_failure_19_a_wrong_value_is_refused_and_says_why(name, value, problem):
    with pytest.raises(ParamValidationError, match=problem) as caught:
        filled(**{name: value})
    assert f"Invalid input for param {name}" in str(caught.value)


def test_failure_19_every_field_has_a_wrong_value_above():
    marks = test_failure_19_a_wrong_value_is_refused_and_says_why.pytestmark
    assert {case[0] for case in marks[0].args[1]} == set(FIELDS)


@pytest.mark.parametrize("rate", ["", "2e-4", "0.0002", " 1e-05 ", ".5", "3E-5", "1"])
def test_a_learning_rate_may_be_written_as_people_write_it(rate):
    assert filled(learning_rate=rate)["learning_rate"] == rate


def test_precisions_are_those_that_can_be_made():
    assert FIELDS["precision"].schema["enum"] == ["auto", *get_args(Variant)]


def test_tasks_are_offered_and_the_first_is_chosen():
    assert FIELDS["task"].schema["enum"] == ["reviews", "tickets"]
    assert FIELDS["task"].value == "reviews"


def test_descriptions_name_no_key_that_is_not_there():
    words = " ".join(field.description for field in FIELDS.values())
    assert set(re.findall(r"[a-z]+\.[a-z]+\b", words)) == {"data.labelled", "compress.prune"}
