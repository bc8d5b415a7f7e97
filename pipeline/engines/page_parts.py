"""What all pages of a partition are put together from: head, tiles, tables, numbers in words."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def style(name: str = "quality_pages.css") -> str:
    """A stylesheet, by default that of all pages."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def page_head(title: str, *, style: str) -> str:
    """The inside of a page's `<head>`; `style` is an element that holds or names the style."""
    return (
        '\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n{style}\n"
    )


def whole_page(title: str, parts: Iterable[str], *, own_style: str | None = None) -> str:
    """A whole page that stands alone, its style in it, with its `own_style` sheet behind."""
    body = "\n".join(parts)
    sheets = style() if own_style is None else f"{style()}\n{style(own_style)}"
    inside = page_head(title, style=f"<style>\n{sheets}</style>")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{inside}</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def tiles(values: Mapping[str, str]) -> str:
    """Large numbers by name, side by side; the numbers are HTML already."""
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in values.items()
    )
    return f'<dl class="tiles">{inner}</dl>'


def table(titles: Sequence[str], lines: Iterable[Sequence[str]], *, kind: str) -> str:
    """Cells are HTML already; a column whose title begins with `-` holds numbers."""
    places = [' class="number"' if title.startswith("-") else "" for title in titles]
    names = [title.removeprefix("-") for title in titles]
    top = "".join(f"<th{place}>{name}</th>" for place, name in zip(places, names, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(f'<td{p}>{cell}</td>' for p, cell in zip(places, line, strict=True))}</tr>"
        for line in lines
    )
    return (
        f'<table class="{kind}">\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )


def percent(fraction: float) -> str:
    """A share in words, four digits of it."""
    return f"{100 * fraction:.4g} %"


def number(value: Any) -> str:
    """A number with its thousands apart."""
    return f"{value:,g}" if isinstance(value, float) and value < 1e6 else f"{value:,.0f}"
