"""Faults of a whole row: what a reader must not score, and must not lose either."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

# Days of at least this many rows have at least one faulty row, so that a demo shows quarantine.
ROWS_THAT_NEED_A_FAULT = 100
# Stands in a value for bytes that are not UTF-8 until the row is bytes; a private-use character.
BAD_BYTES_MARK = "\ue000"
BAD_BYTES = b"\xe9\xff"  # Latin-1 in a UTF-8 file; 0xff is in no UTF-8 text at all


class Fault(StrEnum):
    """Why a reader rejects the row."""

    DUPLICATE_ID = "duplicate_id"
    BLANK_TEXT = "blank_text"
    MISSING_ID = "missing_id"
    INVALID_ENCODING = "invalid_encoding"
    TOO_FEW_FIELDS = "too_few_fields"
    TOO_MANY_FIELDS = "too_many_fields"
    BROKEN_JSON = "broken_json"
    NUMBER_FOR_TEXT = "number_for_text"
    NULL_FOR_TEXT = "null_for_text"


_ANY_FORMAT = {
    Fault.DUPLICATE_ID: 0.003,
    Fault.BLANK_TEXT: 0.007,
    Fault.MISSING_ID: 0.003,
    Fault.INVALID_ENCODING: 0.003,
}
CSV_FAULT_RATES = {
    **_ANY_FORMAT,
    Fault.TOO_FEW_FIELDS: 0.002,
    Fault.TOO_MANY_FIELDS: 0.002,
}
JSONL_FAULT_RATES = {
    **_ANY_FORMAT,
    Fault.BROKEN_JSON: 0.003,
    Fault.NUMBER_FOR_TEXT: 0.002,
    Fault.NULL_FOR_TEXT: 0.002,
}
_BLANKS = ("", " ", "  \n ", "\t", "\u00a0", "\u200b\u200b")


def draw_faults(
    count: int, rates: Mapping[Fault, float], rng: Random, *, scale: float
) -> list[Fault | None]:
    """One entry a row: its fault, or none; the first row, which others may repeat, is sound."""
    faults: list[Fault | None] = [None, *(_draw(rates, rng, scale=scale) for _ in range(count - 1))]
    if count >= ROWS_THAT_NEED_A_FAULT and not any(faults):
        faults[rng.randrange(1, count)] = rng.choice(list(rates))
    return faults[:count]


def _draw(rates: Mapping[Fault, float], rng: Random, *, scale: float) -> Fault | None:
    left = rng.random()
    for fault, rate in rates.items():
        left -= rate * scale
        if left < 0:
            return fault
    return None


def spoil_values(
    values: dict[str, Any],
    fault: Fault,
    rng: Random,
    *,
    id_column: str,
    text_columns: Sequence[str],
    earlier_ids: Sequence[str],
) -> dict[str, Any]:
    """The row's values with a fault that lies in them; a fault of the format changes nothing."""
    body = text_columns[-1]
    changed: dict[str, Any] = {}
    match fault:
        case Fault.DUPLICATE_ID:
            changed = {id_column: rng.choice(earlier_ids)}
        case Fault.MISSING_ID:
            changed = {id_column: ""}
        case Fault.BLANK_TEXT:
            changed = {**dict.fromkeys(text_columns, ""), body: rng.choice(_BLANKS)}
        case Fault.INVALID_ENCODING:
            changed = {body: f"{values[body]} caf{BAD_BYTES_MARK}"}
        case Fault.NUMBER_FOR_TEXT:
            changed = {body: rng.randint(1, 500)}
        case Fault.NULL_FOR_TEXT:
            changed = {body: None}
    return {**values, **changed}
