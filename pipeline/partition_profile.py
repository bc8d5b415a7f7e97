"""What a partition's rows look like without their texts: lengths, measured values, outcomes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pipeline.cells import cell_text
from pipeline.column_rules import Between, ColumnRules, presence_of
from pipeline.compact_columns import OTHER, Flags, Numbers, Words
from pipeline.rows import RawRow, Rejected
from pipeline.validate import MAX_EXAMPLES, place_of
from schemas.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt

    from pipeline.column_rules import RowRule
    from pipeline.flow import Prepared
    from schemas.task import TaskConfig

    _Line = dict[str, float | str | None]

TEXT_CHARS = "text: characters"
REJECTED = "row: rejected"
LANGUAGE = "lang: value"
OUTCOME = "row: outcome"
KEPT = "kept"
REPEATED_ID = "id: repeat"
FIRST, REPEATED = "first", "repeated"


Column = Words | Flags | Numbers


def chars_of(column: str) -> str:
    """What is measured of a text column: its length."""
    return f"{column}: text characters"


class PartitionProfile:
    """One line for each row of a partition, as columns of a few bytes; no text is kept.

    `measured` holds what the contract's rules and the drift checks look at, by name; of a row that
    could not be read it holds the outcome alone.
    """

    def __init__(self, task: TaskConfig, date: dt.date | None = None) -> None:
        data = task.data
        self._data, self._date = data, date
        self._rules = tuple(ColumnRules(name, rule) for name, rule in task.contract.columns.items())
        ids = [data.id_column] if data.id_column else []
        self.columns = tuple(dict.fromkeys([*ids, *data.text_columns, *task.contract.columns]))
        self.rows = 0
        self.by_reason: Counter[Reason] = Counter()
        self.examples: defaultdict[Reason, list[str]] = defaultdict(list)
        self.measured: dict[str, Column] = {
            REJECTED: Flags(),
            OUTCOME: Words((KEPT, *Reason)),
            LANGUAGE: Words(),
            TEXT_CHARS: Numbers(),
            **{chars_of(column): Numbers() for column in data.text_columns},
            **{presence_of(column): Flags() for column in self.columns},
        }
        if data.id_column:
            self.measured[REPEATED_ID] = Words((FIRST, REPEATED))
        for rule in self._each_rule():
            self.measured.setdefault(rule.measured, _column_for(rule))
        self._missing: Counter[str] = Counter()

    def add(self, row: RawRow | Rejected, outcome: Prepared | Rejected) -> None:
        """Takes in a row as it was read, and what became of it."""
        self.rows += 1
        if isinstance(outcome, Rejected):
            self._count(outcome)
        line = _outcome_measured(outcome)
        if isinstance(row, RawRow):
            self._measure(row, line)
        for name, column in self.measured.items():
            column.append(line.get(name))  # type: ignore[arg-type]  # words or numbers, each as due

    @property
    def rejected(self) -> int:
        """Number of rows that would not be scored."""
        return self.by_reason.total()

    @property
    def null_share(self) -> dict[str, float]:
        """Share of missing values by column, of the rows that could be read."""
        read = self._missing[""]
        return {name: self._missing[name] / read for name in self.columns} if read else {}

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take; examples and counters do not grow with them."""
        return sum(column.nbytes for column in self.measured.values())

    def _each_rule(self) -> tuple[RowRule, ...]:
        return tuple(rule for column in self._rules for rule in column.rules)

    def _measure(self, row: RawRow, line: _Line) -> None:
        self._missing[""] += 1
        for column in self.columns:
            is_there = cell_text(row.values.get(column)) is not None
            line[presence_of(column)] = is_there
            self._missing[column] += not is_there
        for rules in self._rules:
            name = rules.column
            cell = rules.cell(row.values.get(name), name in row.repeated, self._date)
            for rule in rules.rules:
                line[rule.measured] = rule.measure(cell)
        id_column = self._data.id_column
        if id_column and line[presence_of(id_column)]:
            line[REPEATED_ID] = REPEATED if id_column in row.repeated else FIRST
        self._measure_texts(row, line)

    def _measure_texts(self, row: RawRow, line: _Line) -> None:
        chars = 0
        for column in self._data.text_columns:
            text = row.values.get(column)
            if isinstance(text, str) and text.strip():
                line[chars_of(column)] = len(text)
                chars += len(text) + bool(chars)  # parts are joined by one character
        line[TEXT_CHARS] = chars

    def _count(self, rejected: Rejected) -> None:
        self.by_reason[rejected.reason] += 1
        examples = self.examples[rejected.reason]
        if len(examples) < MAX_EXAMPLES:
            examples.append(rejected.record_id or place_of(rejected))


def _outcome_measured(outcome: Prepared | Rejected) -> _Line:
    if not isinstance(outcome, Rejected):
        return {REJECTED: False, OUTCOME: KEPT, LANGUAGE: outcome.lang}
    another = OTHER if outcome.reason is Reason.LANGUAGE_NOT_ALLOWED else None
    return {REJECTED: True, OUTCOME: outcome.reason.value, LANGUAGE: another}


def _column_for(rule: RowRule) -> Column:
    return Numbers(exact=True) if isinstance(rule.demand, Between) else Words(rule.demand.values)
