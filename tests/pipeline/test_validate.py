from __future__ import annotations

import datetime as dt

import pytest

from pipeline.rows import RawRow, Record, Rejected
from pipeline.validate import Validator
from schemas.task import ColumnRule, ContractConfig, DataConfig, LanguageRule

DATA = DataConfig(incoming="x", id_column="id", text_columns=("subject", "body"))
FINE = {"id": "1", "subject": "s", "body": "b"}
DAY = dt.date(2026, 11, 28)


def check(values, *, data=DATA, repeated=(), **contract):
    validator = Validator(data, ContractConfig(**contract))
    return validator.check(RawRow("a.csv", 4, values, b"raw", repeated), DAY), validator


def reason(values, **options):
    outcome, _ = check(values, **options)
    assert isinstance(outcome, Rejected)
    assert (outcome.stage, outcome.source_row, outcome.raw) == ("validate", 4, b"raw")
    return str(outcome.reason)


def test_a_record_has_head_and_body():
    record, _ = check({"id": " 7 ", "subject": "s", "body": "b"})
    assert record == Record(
        "7", "a.csv", 4, ("s", "b"), {"id": " 7 ", "subject": "s", "body": "b"}, b"raw"
    )


def test_columns_before_the_last_are_joined_without_blanks():
    data = DataConfig(incoming="x", id_column="id", text_columns=("a", "b", "c", "d"))
    record, _ = check({"id": 1, "a": "x", "b": " ", "c": "y", "d": None}, data=data)
    assert (record.record_id, record.texts) == ("1", ("x\ny", ""))


def test_without_id_column_the_place_is_the_id():
    data = DataConfig(incoming="x", text_columns=("text",))
    record, _ = check({"text": "t"}, data=data)
    assert (record.record_id, record.texts) == ("a.csv:4", ("t",))


def test_failure_37_reasons_of_ids_and_texts_that_are_null_blank_or_no_text():
    assert reason({**FINE, "id": None}) == "missing_id"
    assert reason({**FINE, "id": " "}) == "missing_id"
    assert reason({**FINE, "id": float("nan")}) == "missing_id"
    assert reason({**FINE, "id": [1]}) == "wrong_type"
    assert reason({**FINE, "body": 5}) == "wrong_type"
    assert reason({**FINE, "body": " ", "subject": None}) == "missing_text"
    assert reason({**FINE, "body": float("nan"), "subject": ""}) == "missing_text"
    assert reason(FINE, min_text_chars=4) == "text_too_short"
    assert reason(FINE, max_text_chars=2) == "text_too_long"
    assert isinstance(check(FINE, min_text_chars=3, max_text_chars=3)[0], Record)


def test_column_rules_reject_or_warn():
    fine = {**FINE, "stars": 5, "channel": "fax"}
    columns = {
        "channel": ColumnRule(allowed=("web",), severity="warn"),
        "stars": ColumnRule(allowed=("5", "6"), required=True),
    }
    record, validator = check(fine, columns=columns)
    assert isinstance(record, Record)
    assert validator.warned == {"channel:allowed": 1}
    assert reason({**fine, "stars": 4}, columns=columns) == "value_not_allowed"
    rejected, validator = check({**fine, "stars": ""}, columns=columns)
    assert (rejected.reason, rejected.detail) == ("missing_value", "column 'stars': required")
    assert validator.rejected == {"stars:required": 1}
    warn = {"channel": ColumnRule(required=True, severity="warn")}
    assert check({**fine, "channel": None}, columns=warn)[1].warned == {"channel:required": 1}


def test_a_rule_that_stops_goes_before_one_that_rejects_and_counts_whatever_else_is_wrong():
    columns = {
        "stars": ColumnRule(allowed=("5",)),
        "account": ColumnRule(required=True, severity="stop"),
    }
    rejected, validator = check({**FINE, "stars": "1"}, columns=columns)
    assert rejected.detail == "column 'account': required"
    assert (validator.stopped, validator.rejected) == (
        {"account:required": 1},
        {"stars:allowed": 1},
    )
    rejected, validator = check({"id": "1"}, columns=columns)
    assert rejected.reason == "missing_text"
    assert validator.stopped == {"account:required": 1}


def test_a_repeated_id_and_a_repeated_value_of_a_unique_column():
    columns = {"order": ColumnRule(unique=True)}
    values = {**FINE, "order": "9"}
    assert isinstance(check(values, columns=columns)[0], Record)
    assert reason(values, columns=columns, repeated=("id",)) == "duplicate_id"
    assert reason(values, columns=columns, repeated=("order",)) == "duplicate_value"


def test_times_are_asked_around_the_date_that_is_given():
    columns = {"created": ColumnRule(max_days_before=1)}
    values = {**FINE, "created": "2026-11-20"}
    assert reason(values, columns=columns) == "value_out_of_range"
    undated = Validator(DATA, ContractConfig(columns=columns))
    assert isinstance(undated.check(RawRow("a.csv", 0, values, b"")), Record)


def test_a_detail_never_holds_the_value():
    columns = {"stars": ColumnRule(allowed=("5",))}
    rejected, _ = check({**FINE, "stars": "my secret"}, columns=columns)
    assert rejected.detail == "column 'stars': allowed"


def test_three_examples_are_kept_of_each_rule():
    columns = {"stars": ColumnRule(allowed=("5",))}
    validator = Validator(DATA, ContractConfig(columns=columns))
    for number in range(5):
        validator.check(RawRow("a.csv", number, {**FINE, "id": f"r{number}", "stars": "1"}, b""))
    validator.check(RawRow("a.csv", 5, {"stars": "1"}, b""))
    assert validator.rejected == {"stars:allowed": 6}
    assert validator.examples == {"stars:allowed": ["r0", "r1", "r2"]}


def test_an_example_without_id_is_named_by_its_place():
    validator = Validator(DATA, ContractConfig(columns={"stars": ColumnRule(required=True)}))
    validator.check(RawRow("a.csv", 5, {"body": "b"}, b""))
    assert validator.examples == {"stars:required": ["a.csv:5"]}


@pytest.mark.parametrize(
    ("severity", "reason", "review", "counts"),
    [
        ("reject", "language_not_allowed", False, ({}, {}, {"lang:allowed": 1})),
        ("stop", "language_not_allowed", False, ({}, {"lang:allowed": 1}, {})),
        ("warn", None, False, ({"lang:allowed": 1}, {}, {})),
        ("review", None, True, ({}, {}, {})),
    ],
)
def test_languages(severity, reason, review, counts):
    rule = LanguageRule(allowed=("en", "de"), severity=severity)
    record, validator = check(FINE, languages=rule)
    assert [validator.check_language(record, lang) for lang in ("en", "de", "und")] == [None] * 3
    assert [validator.wants_review(lang) for lang in ("en", "und", "it")] == [False, False, review]
    rejected = validator.check_language(record, "it")
    assert (rejected and rejected.reason) == reason
    if rejected:
        assert (rejected.stage, rejected.record_id) == ("validate", "1")
        assert rejected.detail == "column 'lang': allowed, got it"
    assert (validator.warned, validator.stopped, validator.rejected) == counts


def test_without_a_language_rule_every_language_passes():
    record, validator = check(FINE)
    assert validator.check_language(record, "tlh") is None
    assert not validator.wants_review("tlh")
