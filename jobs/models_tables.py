"""How the commands of `nightmill models` print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.bundle import GateResult, HeadMetrics
    from schemas.promotion import Decision, HeadRecord

_MINUTE_CHARS = len("2026-11-28T10:20")


def new_console() -> Console:
    """Where to print; wide enough for a log as well, since a pipe has no width of its own."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False, markup=False)


def new_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: str = ""
) -> Table:
    """A table of texts as they are; `numbers` names the columns to be set to the right."""
    table = Table(title=Text(title), title_justify="left")
    for name in columns:
        is_number = name != "" and name in numbers.split(", ")
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Name and value, a line each."""
    return new_table(title, ("", "value"), facts.items())


def quality_table(title: str, heads: Mapping[str, HeadMetrics] | Mapping[str, HeadRecord]) -> Table:
    """Quality by head, with its intervals."""
    rows = [
        (
            name, str(found.rows), f"{found.accuracy:.3f}", interval(found.accuracy_interval),
            f"{found.macro_f1:.3f}", interval(found.macro_f1_interval),
            f"{found.expected_calibration_error:.3f}",
        )
        for name, found in heads.items()
    ]  # fmt: skip
    columns = ("head", "rows", "accuracy", "95 %", "macro-F1", "95 % ", "calibration error")
    return new_table(title, columns, rows, numbers=", ".join(columns[1:]))


def gate_cell(gate: GateResult | None) -> str:
    """What was measured against what was asked, and the verdict."""
    if gate is None:
        return "not measured"
    verdict = "passed" if gate.passed else "FAILED"
    return f"{gate.value:.5g} {gate.rule} {gate.threshold:.5g} {verdict}"


def interval(bounds: tuple[float, float]) -> str:
    """An interval in words."""
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def minute(decision: Decision) -> str:
    """When it was decided, in UTC."""
    return f"{decision.at.isoformat()[:_MINUTE_CHARS].replace('T', ' ')} UTC"


def digest_cell(digest: str) -> str:
    """As much of a digest as people compare."""
    return digest[:12] or "none"
