"""Which rows end the process that scores them, found by halving."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = tuple[int, ...]


def find_culprits(rows: Rows, survives: Callable[[Rows], bool]) -> Rows:
    """The rows that do not survive alone, in order, of a group known not to survive.

    Empty where only several rows together do it. For k culprits among n rows `survives` is asked
    at most 2 k log2(n) times, log2 rounded up.
    """
    if len(rows) == 1:
        return rows
    middle = len(rows) // 2
    halves = [half for half in (rows[:middle], rows[middle:]) if half and not survives(half)]
    return tuple(row for half in halves for row in find_culprits(half, survives))
