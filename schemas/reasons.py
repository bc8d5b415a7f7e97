"""Why a row was rejected: a closed list, so that counts can be compared over nights."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from schemas.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    INVALID_ENCODING = "invalid_encoding"  # bytes that are not text in the file's encoding
    RECORD_TOO_LARGE = "record_too_large"  # more bytes than one record may have
    TRUNCATED_FILE = "truncated_file"  # the file is cut off here; what followed is lost
    MISSING_ID = "missing_id"
    DUPLICATE_ID = "duplicate_id"  # a later row of the partition with an id already seen
    MISSING_TEXT = "missing_text"  # null, or nothing but white space
    MISSING_VALUE = "missing_value"  # of a column that the contract requires
    WRONG_TYPE = "wrong_type"  # a value of another type than the column has
    TEXT_TOO_SHORT = "text_too_short"
    TEXT_TOO_LONG = "text_too_long"
    VALUE_NOT_ALLOWED = "value_not_allowed"  # not in the column's list, or not of its pattern
    VALUE_OUT_OF_RANGE = "value_out_of_range"  # number, length or time
    DUPLICATE_VALUE = "duplicate_value"  # a later row with the value of a unique column
    LANGUAGE_NOT_ALLOWED = "language_not_allowed"
    EMPTY_AFTER_CLEANING = "empty_after_cleaning"
    NON_FINITE_SCORE = "non_finite_score"
    ENDS_ITS_WORKER = "ends_its_worker"  # the process that scores it dies, each time


def parse_reasons(names: Iterable[str]) -> tuple[Reason, ...]:
    """The reasons of these names, each once, in the order of the closed list.

    Raises:
        ConfigError: there is no such reason.
    """
    known = [reason.value for reason in Reason]
    wanted = set(names)
    for name in sorted(wanted):
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"unknown reason {name!r}{hint}; known: {', '.join(known)}")
    return tuple(reason for reason in Reason if reason.value in wanted)
