"""Why a row was rejected: a closed list, so that counts can be compared over nights."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The step that rejected a row."""

    READ = "read"
    VALIDATE = "validate"
    CLEAN = "clean"
    INFER = "infer"


class Reason(StrEnum):
    """The outcome of a row that is not scored."""

    MALFORMED_ROW = "malformed_row"  # wrong number of fields
    UNCLOSED_QUOTE = "unclosed_quote"  # a CSV quote that the file never closes
    INVALID_JSON = "invalid_json"  # a JSONL line that is not a JSON object
    INVALID_UTF8 = "invalid_utf8"  # bytes that are not UTF-8
    MISSING_ID = "missing_id"
    DUPLICATE_ID = "duplicate_id"  # a later row of the partition with an id already seen
    MISSING_TEXT = "missing_text"  # null, or nothing but white space
    WRONG_TYPE = "wrong_type"  # a value of another type than the column has
    TEXT_TOO_SHORT = "text_too_short"
    TEXT_TOO_LONG = "text_too_long"
    VALUE_NOT_ALLOWED = "value_not_allowed"
    EMPTY_AFTER_CLEANING = "empty_after_cleaning"
    NON_FINITE_SCORE = "non_finite_score"
