from __future__ import annotations

import pytest

from pipeline.rows import RawRow, Record, Rejected
from pipeline.validate import Validator, id_text
from schemas.task import ColumnRule, ContractConfig, DataConfig

DATA = DataConfig(incoming="x", id_column="id", text_columns=("subject", "body"))


def check(values, *, data=DATA, **contract):
    validator = Validator(data, ContractConfig(**contract))
    return validator.check(RawRow("a.csv", 4, values, b"raw")), validator


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a ", "a"), (12, "12"), (12.0, "12"), (1.5, None), (True, None), ("  ", None),
        (None, None), (float("nan"), None), (2.0**60, None),
    ],
)  # fmt: skip
def test_id_text(value, text):
    assert id_text(value) == text


def test_reasons_of_ids_and_texts():
    fine = {"id": "1", "subject": "s", "body": "b"}
    assert reason({**fine, "id": None}) == "missing_id"
    assert reason({**fine, "id": " "}) == "missing_id"
    assert reason({**fine, "id": float("nan")}) == "missing_id"
    assert reason({**fine, "id": [1]}) == "wrong_type"
    assert reason({**fine, "body": 5}) == "wrong_type"
    assert reason({**fine, "body": " ", "subject": None}) == "missing_text"
    assert reason(fine, min_text_chars=4) == "text_too_short"
    assert reason(fine, max_text_chars=2) == "text_too_long"
    assert isinstance(check(fine, min_text_chars=3, max_text_chars=3)[0], Record)


def test_column_rules_reject_or_warn():
    fine = {"id": "1", "subject": "s", "body": "b", "stars": 5, "channel": "fax"}
    columns = {
        "channel": ColumnRule(allowed=("web",), severity="warn"),
        "stars": ColumnRule(allowed=("5", "6"), required=True),
    }
    record, validator = check(fine, columns=columns)
    assert isinstance(record, Record)
    assert validator.warned == {"channel:allowed": 1}
    assert reason({**fine, "stars": 4}, columns=columns) == "value_not_allowed"
    rejected, _ = check({**fine, "stars": ""}, columns=columns)
    assert rejected.detail == "column 'stars': required"
    warn = {"channel": ColumnRule(required=True, severity="warn")}
    assert check({**fine, "channel": None}, columns=warn)[1].warned == {"channel:required": 1}


def test_a_detail_never_holds_the_value():
    columns = {"stars": ColumnRule(allowed=("5",))}
    rejected, _ = check({"id": "1", "body": "b", "stars": "my secret"}, columns=columns)
    assert rejected.detail == "column 'stars': allowed"
