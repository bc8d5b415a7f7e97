"""Gates as a table for logs: a person who looks at a failed step reads it at a glance."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.bundle import GateResult

_WIDTH = 120  # logs know no terminal


def gate_table(gates: Sequence[GateResult]) -> str:
    """One line a gate in the order given, without colours or trailing blanks."""
    table = Table("variant", "gate", box=None, pad_edge=False)
    table.add_column("value", justify="right")
    table.add_column("asked", justify="right")
    table.add_column("outcome")
    for gate in gates:
        outcome = "passed" if gate.passed else "FAILED"
        asked = f"{gate.rule} {gate.threshold:.5g}"
        table.add_row(gate.variant, gate.gate, f"{gate.value:.5g}", asked, outcome)
    text = io.StringIO()
    Console(file=text, width=_WIDTH, markup=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
