"""Markdown as Airflow's pages show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What would end a cell, begin markup or a link, or bring in HTML.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are taken as they are."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    """Somebody's text in one line, none of which is taken for markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def number(value: float | None) -> str:
    """Four digits that count; nothing where it was not measured."""
    return "" if value is None else f"{value:.4g}"


def signed(value: float) -> str:
    """A difference, to three digits behind the point."""
    return f"{value:+.3f}"


def with_interval(value: float, interval: tuple[float, float] | None) -> str:
    """A figure with its 95 % interval."""
    if interval is None:
        return f"{value:.3f}"
    low, high = interval
    return f"{value:.3f} ({low:.3f} to {high:.3f})"
