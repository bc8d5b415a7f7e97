"""The contract's row rules: a raw row becomes a record, or is rejected with the first reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.rows import RawRow, Record, Rejected
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    import datetime as dt

    from schemas.task import ColumnRule, ContractConfig, DataConfig

# Whole numbers up to here are exact as floats; beyond, neighbours fall together.
_MAX_EXACT_FLOAT = 2**53


def id_text(value: Any) -> str | None:
    """The text of an id, None where there is none.

    Whole numbers give their decimals, also where a column of integers drifted to floats because
    of its nulls, as data frames do.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_FLOAT:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return (value.strip() or None) if isinstance(value, str) else None


def cell_text(value: Any) -> str | None:
    """The text of a value as rules compare it, None for a missing or blank one."""
    if is_missing(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return id_text(value) if isinstance(value, str | float) else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is null: None, or the NaN that data frames write instead."""
    return value is None or (isinstance(value, float) and value != value)  # noqa: PLR0124 - NaN


def joined_text(texts: tuple[str, ...]) -> str:
    """The parts of a record's text that are not blank, as its length is counted."""
    return "\n".join(text for text in texts if text.strip())


class Validator:
    """Checks rows against the contract; `warned` and `stopped` count rules that warn or stop."""

    def __init__(self, data: DataConfig, contract: ContractConfig) -> None:
        self._data = data
        self._contract = contract
        self.warned: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    def check(self, row: RawRow, date: dt.date | None = None) -> Record | Rejected:
        """The record of a row, or the first rule that it breaks.

        `date` is the partition's; without one, rules about time around it are not asked.
        """
        record_id = self._record_id(row)
        if isinstance(record_id, _Breach):
            return self._reject(row, None, record_id)
        if self._data.id_column in row.repeated:
            earlier = _Breach(Reason.DUPLICATE_ID, "an earlier row of the partition has this id")
            return self._reject(row, record_id, earlier)
        texts = self._texts(row)
        if isinstance(texts, _Breach):
            return self._reject(row, record_id, texts)
        breach = self._broken_length(texts) or self._broken_column(row)
        if breach is not None:
            return self._reject(row, record_id, breach)
        return Record(record_id, row.source_file, row.source_row, texts, row.values, row.raw)

    def check_language(self, record: Record, lang: str) -> Rejected | None:
        """The rejection of a record in a language that the contract does not allow."""
        return None

    def wants_review(self, lang: str) -> bool:
        """Whether the contract sends texts of a language to people."""
        return False

    def _record_id(self, row: RawRow) -> str | _Breach:
        column = self._data.id_column
        if column is None:
            return f"{row.source_file}:{row.source_row}"
        value = row.values.get(column)
        text = id_text(value)
        if text is not None:
            return text
        if is_missing(value) or isinstance(value, str):
            return _Breach(Reason.MISSING_ID, f"column {column!r} is empty")
        got = type(value).__name__
        return _Breach(Reason.WRONG_TYPE, f"column {column!r}: got {got}, expected text")

    def _texts(self, row: RawRow) -> tuple[str, ...] | _Breach:
        """`(body,)`, or `(head, body)` where there are several text columns."""
        texts: list[str] = []
        for column in self._data.text_columns:
            value = row.values.get(column)
            if is_missing(value):
                value = ""
            if not isinstance(value, str):
                got = type(value).__name__
                return _Breach(Reason.WRONG_TYPE, f"column {column!r}: got {got}, expected text")
            texts.append(value)
        if not any(text.strip() for text in texts):
            return _Breach(Reason.MISSING_TEXT, f"blank: {', '.join(self._data.text_columns)}")
        if len(texts) == 1:
            return (texts[0],)
        return (joined_text(tuple(texts[:-1])), texts[-1])

    def _broken_length(self, texts: tuple[str, ...]) -> _Breach | None:
        chars = len(joined_text(texts))
        low, high = self._contract.min_text_chars, self._contract.max_text_chars
        if chars < low:
            return _Breach(Reason.TEXT_TOO_SHORT, f"got {chars} characters, at least {low}")
        if chars > high:
            return _Breach(Reason.TEXT_TOO_LONG, f"got {chars} characters, at most {high}")
        return None

    def _broken_column(self, row: RawRow) -> _Breach | None:
        rejecting: _Breach | None = None
        for column, rule in self._contract.columns.items():
            broken = _broken_rule(cell_text(row.values.get(column)), rule)
            if broken is None:
                continue
            if rule.severity == "warn":
                self.warned[f"{column}:{broken}"] += 1
            elif rejecting is None:
                rejecting = _Breach(Reason.VALUE_NOT_ALLOWED, f"column {column!r}: {broken}")
        return rejecting

    @staticmethod
    def _reject(row: RawRow, record_id: str | None, breach: _Breach) -> Rejected:
        return Rejected(
            record_id,
            row.source_file,
            row.source_row,
            Stage.VALIDATE,
            breach.reason,
            breach.detail,
            row.raw,
        )


@dataclass(frozen=True, slots=True)
class _Breach:
    reason: Reason
    detail: str


def _broken_rule(value: str | None, rule: ColumnRule) -> str | None:
    """The name of the rule that a value breaks: `required`, `allowed`, or None."""
    if value is None:
        return "required" if rule.required else None
    return "allowed" if rule.allowed is not None and value not in rule.allowed else None
