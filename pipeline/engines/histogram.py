"""A distribution of lengths drawn as SVG in the colours of the page around it."""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.profiles import Distribution

_WIDTH, _HEIGHT = 520, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 34, 28
_GAP = 2
_MARK_LABEL_CHARS = 7.0  # width of one, in units of the drawing


def histogram(distribution: Distribution, *, title: str) -> str:
    """A figure: each bar is half of a doubling wide, median and 95th percentile are marked."""
    bounds = _bounds(distribution)
    counts = dict(distribution.bars)
    step = (_WIDTH - _LEFT - _RIGHT) / (len(bounds) - 1)
    top = _round_up(max(counts.values()))
    inner = [
        *_grid(top),
        *_bars(bounds, counts, step=step, top=top),
        *_labels(bounds, step=step),
        *_marks(distribution, bounds, step=step),
    ]
    about = (
        f"{title}: median {distribution.median:,}, 95th percentile {distribution.p95:,}, "
        f"largest {distribution.largest:,}"
    )
    return (
        f'<figure>\n<figcaption>{escape(title)} <span class="faint">mean '
        f"{distribution.mean:,.1f}, largest {distribution.largest:,}</span></figcaption>\n"
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(about)}">\n' + "\n".join(inner) + "\n</svg>\n</figure>"
    )


def _bounds(distribution: Distribution) -> list[int]:
    """Lower bounds of all bars from the first to the last, also empty ones, and the end."""
    first, last = distribution.bars[0][0], distribution.bars[-1][0]
    bounds = [first]
    while bounds[-1] <= last:
        bounds.append(_next_bound(bounds[-1]))
    return bounds


def _next_bound(bound: int) -> int:
    """The bound after one: from 0 they are 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    return bound + (1 << max(0, bound.bit_length() - 2))


def _round_up(count: int) -> int:
    """The next number of one digit and zeros, so that lines stand at round numbers."""
    size: int = 10 ** (len(str(count)) - 1)
    return -(-count // size) * size


def _y(count: float, top: int) -> float:
    return _HEIGHT - _BOTTOM - count / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(top: int) -> Iterator[str]:
    digit = int(str(top)[0])
    lines = next(n for n in (4, 3, 5, 7, 2, 1) if digit % n == 0)
    for line in range(lines + 1):
        count = top * line // lines
        y = _y(count, top)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{count:,}</text>'


def _bars(bounds: list[int], counts: dict[int, int], *, step: float, top: int) -> Iterator[str]:
    for place, (low, following) in enumerate(pairwise(bounds)):
        count = counts.get(low, 0)
        if not count:
            continue
        y = _y(count, top)
        reach = f"{low:,}" if following == low + 1 else f"{low:,} to {following - 1:,}"
        yield (
            f'<rect x="{_LEFT + place * step + _GAP / 2:.1f}" y="{y:.1f}" '
            f'width="{max(1.0, step - _GAP):.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}">'
            f"<title>{reach}: {count:,}</title></rect>"
        )


def _labels(bounds: list[int], *, step: float) -> Iterator[str]:
    """The bounds under the axis, as many as there is room for."""
    every = max(1, math.ceil(48 / step))
    for place, bound in enumerate(bounds):
        if place % every == 0:
            x = _LEFT + place * step
            y = _HEIGHT - _BOTTOM + 18
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{bound:,}</text>'


def _marks(distribution: Distribution, bounds: list[int], *, step: float) -> Iterator[str]:
    """Median and 95th percentile; their names stand on two lines, so that they never meet."""
    for name, value, is_left, y in (
        ("median", distribution.median, True, _TOP - 23),
        ("p95", distribution.p95, False, _TOP - 10),
    ):
        x = _LEFT + _place(value, bounds) * step
        label = f"{name} {value:,}"
        width = len(label) * _MARK_LABEL_CHARS
        to_left = (is_left and x > width) or x + width > _WIDTH
        anchor, shift = ("end", -4) if to_left else ("start", 4)
        yield (
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 4}" y2="{_HEIGHT - _BOTTOM}"/>'
        )
        yield (
            f'<text class="mark" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{label}</text>'
        )


def _place(value: int, bounds: list[int]) -> float:
    """Where a value stands, in bars from the left."""
    for place, (low, following) in enumerate(pairwise(bounds)):
        if low <= value < following:
            return place + (value - low) / (following - low)
    return len(bounds) - 1
