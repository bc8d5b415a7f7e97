"""The contract's row rules: a raw row becomes a record, or is rejected with the first reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pipeline.cells import id_text, is_missing
from pipeline.column_rules import ColumnRules
from pipeline.rows import RawRow, Record, Rejected
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    import datetime as dt

    from schemas.task import ContractConfig, DataConfig, Severity

UNDETERMINED = "und"  # ISO 639-2's code of no language
MAX_EXAMPLES = 3
LANGUAGE_RULE = "lang:allowed"


def joined_text(texts: tuple[str, ...]) -> str:
    """The parts of a record's text that are not blank, as its length is counted."""
    return "\n".join(text for text in texts if text.strip())


class Validator:
    """Checks rows against the contract.

    `warned`, `stopped` and `rejected` count rows by the rule on a column that they break, as
    `column:rule`, and `examples` holds the ids of the first few. A row counts once for a column,
    whatever else is wrong with it.
    """

    def __init__(self, data: DataConfig, contract: ContractConfig) -> None:
        self._data = data
        self._contract = contract
        self._columns = tuple(ColumnRules(name, rule) for name, rule in contract.columns.items())
        self.warned: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)

    def check(self, row: RawRow, date: dt.date | None = None) -> Record | Rejected:
        """The record of a row, or the first rule that it breaks.

        `date` is the partition's; without one, rules about time around it are not asked.
        """
        record_id = self._record_id(row)
        name = record_id if isinstance(record_id, str) else None
        broken_column = self._broken_column(row, name, date)
        if isinstance(record_id, _Breach):
            return _rejected(row, None, record_id)
        if self._data.id_column in row.repeated:
            return _rejected(row, name, _SAME_ID)
        texts = self._texts(row)
        if isinstance(texts, _Breach):
            return _rejected(row, name, texts)
        if (breach := self._broken_length(texts) or broken_column) is not None:
            return _rejected(row, name, breach)
        return Record(record_id, row.source_file, row.source_row, texts, row.values, row.raw)

    def check_language(self, record: Record, lang: str) -> Rejected | None:
        """The rejection of a record in a language that the contract does not allow."""
        rule = self._contract.languages
        if rule is None or rule.severity == "review" or self._is_allowed(lang):
            return None
        self._count(LANGUAGE_RULE, rule.severity, record.record_id)
        if rule.severity == "warn":
            return None
        detail = f"column 'lang': allowed, got {lang}"
        return _rejected(record, record.record_id, _Breach(Reason.LANGUAGE_NOT_ALLOWED, detail))

    def wants_review(self, lang: str) -> bool:
        """Whether the contract sends texts of a language to people."""
        rule = self._contract.languages
        return rule is not None and rule.severity == "review" and not self._is_allowed(lang)

    def _is_allowed(self, lang: str) -> bool:
        rule = self._contract.languages
        return rule is None or lang == UNDETERMINED or lang in rule.allowed

    def _record_id(self, row: RawRow) -> str | _Breach:
        column = self._data.id_column
        if column is None:
            return place_of(row)
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

    def _broken_column(
        self, row: RawRow, record_id: str | None, date: dt.date | None
    ) -> _Breach | None:
        """The rule that rejects a row; one that stops the night goes before one that does not."""
        found: dict[Severity, _Breach] = {}
        for column in self._columns:
            name = column.column
            cell = column.cell(row.values.get(name), name in row.repeated, date)
            rule = column.first_broken(cell)
            if rule is not None:
                self._count(rule.key, rule.severity, record_id or place_of(row))
                breach = _Breach(rule.reason, f"column {name!r}: {rule.name}")
                found.setdefault(rule.severity, breach)
        return found.get("stop") or found.get("reject")

    def _count(self, key: str, severity: Severity, example: str) -> None:
        counts = {"warn": self.warned, "stop": self.stopped, "reject": self.rejected}
        counts[severity][key] += 1
        if len(self.examples[key]) < MAX_EXAMPLES:
            self.examples[key].append(example)


class _Breach(NamedTuple):
    reason: Reason
    detail: str


_SAME_ID = _Breach(Reason.DUPLICATE_ID, "an earlier row of the partition has this id")


def place_of(row: RawRow | Record | Rejected) -> str:
    """Where a row stands, which names it where nothing else does."""
    return f"{row.source_file}:{row.source_row}"


def _rejected(row: RawRow | Record, record_id: str | None, breach: _Breach) -> Rejected:
    return Rejected(record_id, row.source_file, row.source_row, Stage.VALIDATE, *breach, row.raw)
