"""The contract's columns as rules: each says what is measured of a cell and what that must be.

Row rules ask it of one row, and Great Expectations asks the very same of what the partition's
profile has measured, so that the two cannot disagree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.cells import boolean_in, cell_text, day_in, integer_in, moment_in, number_in
from schemas.errors import ConfigError
from schemas.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping

    from schemas.task import ColumnRule, ColumnType, Severity

_PARSERS: Mapping[ColumnType, Callable[[str], Any]] = {
    "string": str,
    "integer": integer_in,
    "number": number_in,
    "boolean": boolean_in,
    "date": day_in,
    "timestamp": moment_in,
}
_TYPES_OF_BOUNDS: Mapping[tuple[ColumnType, ...], tuple[str, ...]] = {
    ("number", "integer"): ("min_value", "max_value"),
    ("timestamp", "date"): ("max_days_before", "max_days_after"),
}
_SHOWN_VALUES = 12


class Cell(NamedTuple):
    """A value as rules see it: its text, and what that means in the type of its column.

    Both are None for a missing value, `value` alone for one of another type.
    """

    text: str | None
    value: Any
    repeated: bool
    date: dt.date | None


@dataclass(frozen=True, slots=True)
class OneOf:
    """What is measured must be one of some words."""

    values: tuple[str, ...]

    def test(self) -> Callable[[Any], bool]:
        """A function that says whether something measured is as demanded."""
        return frozenset(self.values).__contains__


@dataclass(frozen=True, slots=True)
class Between:
    """What is measured must lie between two numbers, both included; None is no bound."""

    low: float | None = None
    high: float | None = None

    def test(self) -> Callable[[Any], bool]:
        """A function that says whether something measured is as demanded."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return lambda measured: low <= measured <= high


@dataclass(frozen=True, slots=True)
class RowRule:
    """One rule on one column.

    `measure` gives None for a cell that the rule has no say about. `measured` names what it
    measures; rules of the same name measure the same. `expected` ends "expected all values to …".
    """

    column: str
    name: str
    reason: Reason
    severity: Severity
    expected: str
    measured: str
    measure: Callable[[Cell], Any]
    demand: OneOf | Between

    @property
    def key(self) -> str:
        """The rule's name in counters."""
        return f"{self.column}:{self.name}"


class ColumnRules:
    """All rules of one column, in the order in which they are asked.

    Raises:
        ConfigError: bounds that the column's type does not have.
    """

    def __init__(self, column: str, config: ColumnRule) -> None:
        self.column = column
        self.severity = config.severity
        self._type = _type_of(column, config)
        self._parse = _PARSERS[self._type or "string"]
        self.rules = tuple(self._compiled(config))
        # Millions of cells pass here: what can be looked up once is.
        self._tests = [(rule, rule.measure, rule.demand.test()) for rule in self.rules]

    def cell(self, value: Any, repeated: bool, date: dt.date | None) -> Cell:
        """A value of this column; `date` is the partition's."""
        text = cell_text(value)
        is_nested = self._type is not None and isinstance(value, dict | list | bytes)
        parsed = None if text is None or is_nested else self._parse(text)
        return Cell(text, parsed, repeated, date)

    def first_broken(self, cell: Cell) -> RowRule | None:
        """The first rule that a cell breaks; what it breaks then is no longer asked."""
        for rule, measure, is_met in self._tests:
            measured = measure(cell)
            if measured is not None and not is_met(measured):
                return rule
        return None

    def _compiled(self, config: ColumnRule) -> Iterator[RowRule]:
        rule = partial(RowRule, self.column, severity=config.severity)
        if config.required:
            yield rule(
                "required", Reason.MISSING_VALUE, expected="be present",
                measured=presence_of(self.column), measure=_presence, demand=Between(low=1),
            )  # fmt: skip
        if self._type is not None:
            yield rule(
                "type", Reason.WRONG_TYPE, expected=f"be of type {self._type}",
                measured=f"{self.column}: type", measure=partial(_type, name=self._type),
                demand=OneOf((self._type,)),
            )  # fmt: skip
        yield from self._words(config)
        yield from self._ranges(config)
        if config.unique:
            yield rule(
                "unique", Reason.DUPLICATE_VALUE, expected="be unlike those of all rows before",
                measured=f"{self.column}: repeat", measure=_repeat, demand=OneOf((_FIRST,)),
            )  # fmt: skip

    def _words(self, config: ColumnRule) -> Iterator[RowRule]:
        rule = partial(RowRule, self.column, severity=config.severity)
        if config.allowed is not None:
            yield rule(
                "allowed", Reason.VALUE_NOT_ALLOWED, expected=f"be one of {_some(config.allowed)}",
                measured=f"{self.column}: value", measure=_text, demand=OneOf(config.allowed),
            )  # fmt: skip
        if config.pattern is not None:
            yield rule(
                "pattern", Reason.VALUE_NOT_ALLOWED, expected=f"match {config.pattern}",
                measured=f"{self.column}: pattern",
                measure=partial(_match, pattern=re.compile(config.pattern)),
                demand=OneOf((_MATCHES,)),
            )  # fmt: skip

    def _ranges(self, config: ColumnRule) -> Iterator[RowRule]:
        for each in _RANGES:
            bound = getattr(config, each.name)
            if bound is None:
                continue
            limit = each.sign * bound
            yield RowRule(
                self.column,
                each.name,
                Reason.VALUE_OUT_OF_RANGE,
                config.severity,
                each.words.format(_in_words(bound)),
                f"{self.column}: {each.unit}",
                each.measure,
                Between(low=limit) if each.is_lower else Between(high=limit),
            )


_FIRST, _REPEATED = "first", "repeated"
_MATCHES, _OTHER = "matches", "does not match"


def _type_of(column: str, config: ColumnRule) -> ColumnType | None:
    """The column's type, also where bounds imply it."""
    found = config.type
    for fitting, bounds in _TYPES_OF_BOUNDS.items():
        if all(getattr(config, bound) is None for bound in bounds):
            continue
        found = found or fitting[0]
        if found not in fitting:
            raise ConfigError(
                f"contract.columns.{column}: {' and '.join(bounds)} need type "
                f"{' or '.join(fitting)}, got {found}"
            )
    return found


def presence_of(column: str) -> str:
    """What is measured where it matters whether a column has a value: 1 or 0."""
    return f"{column}: presence"


def _presence(cell: Cell) -> int:
    return int(cell.text is not None)


def _type(cell: Cell, *, name: str) -> str | None:
    if cell.text is None:
        return None
    return f"not {name}" if cell.value is None else name


def _text(cell: Cell) -> str | None:
    return None if cell.value is None else cell.text


def _match(cell: Cell, *, pattern: re.Pattern[str]) -> str | None:
    if cell.text is None or cell.value is None:
        return None
    return _MATCHES if pattern.fullmatch(cell.text) else _OTHER


def _chars(cell: Cell) -> int | None:
    return None if cell.text is None or cell.value is None else len(cell.text)


def _number(cell: Cell) -> float | None:
    return cell.value if isinstance(cell.value, float) else None


def _days(cell: Cell) -> int | None:
    if cell.value is None or cell.date is None:
        return None
    days: int = (cell.value.date() - cell.date).days
    return days


def _repeat(cell: Cell) -> str | None:
    if cell.text is None:
        return None
    return _REPEATED if cell.repeated else _FIRST


class _Range(NamedTuple):
    """A bound of a column's configuration; `sign` is that of the bound as it is measured."""

    name: str
    is_lower: bool
    unit: str
    measure: Callable[[Cell], Any]
    words: str
    sign: int = 1


_RANGES = (
    _Range("min_chars", True, "characters", _chars, "have at least {} characters"),
    _Range("max_chars", False, "characters", _chars, "have at most {} characters"),
    _Range("min_value", True, "number", _number, "be at least {}"),
    _Range("max_value", False, "number", _number, "be at most {}"),
    _Range("max_days_before", True, "days", _days, "be at most {} days before the date", -1),
    _Range("max_days_after", False, "days", _days, "be at most {} days after the date"),
)


def _in_words(bound: float) -> str:
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:,}"


def _some(values: tuple[str, ...]) -> str:
    shown = ", ".join(values[:_SHOWN_VALUES])
    more = len(values) - _SHOWN_VALUES
    return f"{shown} and {more} more" if more > 0 else shown
