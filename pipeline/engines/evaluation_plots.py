"""An evaluation page's drawings as SVG in its colours: curves, reliability, confusions."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.model.head_quality import Bin

_WIDTH, _HEIGHT = 520, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 92, 16, 34
_LINES = 4
_SQUARE = 300  # the confidence plot: both axes are shares
_GRID = 460  # side of a confusion matrix without its labels
_NUMBERED_LABELS = 20  # up to so many there is room for names and numbers
_LABEL_CHARS = 18
_CHAR = 6.6  # width of one, in units of the drawing


def curve_plot(
    title: str, epochs: Sequence[int], series: Sequence[tuple[str, Sequence[float]]], *, best: int
) -> str:
    """A figure of one or two series by epoch; the epoch `best`, whose weights ship, is marked.

    Values that are not finite leave a gap.
    """
    finite = [value for _, values in series for value in values if math.isfinite(value)]
    if not finite:
        return ""
    top = _round_up(max(finite))
    x = _Scale(epochs[0], epochs[-1], low=_LEFT, high=_WIDTH - _RIGHT)
    y = _Scale(0.0, top, low=_HEIGHT - _BOTTOM, high=_TOP)
    inner = [
        *(_rule(y(top * i / _LINES), f"{top * i / _LINES:g}") for i in range(_LINES + 1)),
        *_epoch_marks(epochs, x),
        f'<line class="best" x1="{x(best):.1f}" x2="{x(best):.1f}" y1="{_TOP}" '
        f'y2="{_HEIGHT - _BOTTOM}"/>',
    ]
    ends = _apart([y(_last_finite(values)) for _, values in series])
    for place, (name, values) in enumerate(series):
        points = [
            (x(e), y(v), f"epoch {e}: {name} {v:.4g}")
            for e, v in zip(epochs, values, strict=True)
            if math.isfinite(v)
        ]
        label = (
            f'<text class="name" x="{x(epochs[-1]) + 8:.1f}" y="{ends[place] + 4:.1f}">'
            f"{escape(name)}</text>"
        )
        kind = "second" if place else "first"
        inner.append(f'<g class="{kind}">{_line(points)}{label}</g>')
    return _figure(title, f"best epoch {best}", inner, width=_WIDTH, height=_HEIGHT)


def trials_plot(title: str, trials: Sequence[tuple[int, Sequence[float]]], *, chosen: int) -> str:
    """A figure of macro-F1 by epoch, a line for each trial (its number, its values).

    `chosen` is drawn last, in the second colour and with its number; the others' are at their dots.
    """
    values = [value for _, each in trials for value in each]
    if not values:
        return ""
    margin = max(0.01, (max(values) - min(values)) / 8)
    low, high = max(0.0, min(values) - margin), min(1.0, max(values) + margin)
    epochs = range(1, max(len(each) for _, each in trials) + 1)
    x = _Scale(1, epochs[-1], low=_LEFT, high=_WIDTH - _RIGHT)
    y = _Scale(low, high, low=_HEIGHT - _BOTTOM, high=_TOP)
    marks = [low + (high - low) * i / _LINES for i in range(_LINES + 1)]
    inner = [*(_rule(y(mark), f"{mark:.3f}") for mark in marks), *_epoch_marks(epochs, x)]
    for number, each in sorted(trials, key=lambda trial: trial[0] == chosen):
        told = f"trial {number}"
        points = [(x(e), y(v), f"{told}, epoch {e}: {v:.4f}") for e, v in enumerate(each, start=1)]
        label = (
            f'<text class="name" x="{points[-1][0] + 8:.1f}" y="{points[-1][1] + 4:.1f}">{told}'
            "</text>"
        )
        kind, name = ("second", label) if number == chosen else ("first faded", "")
        inner.append(f'<g class="{kind}">{_line(points)}{name}</g>')
    return _figure(title, f"trial {chosen} was chosen", inner, width=_WIDTH, height=_HEIGHT)


def reliability_plot(title: str, bins: Sequence[Bin], *, note: str) -> str:
    """A figure of the share right by confidence; a dot's size tells how many answers it has."""
    edge, total = 40, sum(each.rows for each in bins)
    x = _Scale(0, 1, low=edge, high=_SQUARE - 14)
    y = _Scale(0, 1, low=_SQUARE - edge, high=14)
    inner = []
    for i in range(5):
        share = i / 4
        inner.append(
            f'<line class="grid" x1="{x(0)}" x2="{x(1)}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>'
            f'<text x="{edge - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:g}</text>'
            f'<text x="{x(share):.1f}" y="{_SQUARE - edge + 16}" text-anchor="middle">{share:g}'
            "</text>"
        )
    inner.append(f'<line class="ideal" x1="{x(0)}" x2="{x(1)}" y1="{y(0)}" y2="{y(1)}"/>')
    inner.append(_polyline([(x(each.confidence), y(each.accuracy)) for each in bins]))
    for each in bins:
        told = (
            f"confidence {each.confidence:.3f}: {each.accuracy:.1%} of {each.rows:,} answers right"
        )
        inner.append(
            f'<circle cx="{x(each.confidence):.1f}" cy="{y(each.accuracy):.1f}" '
            f'r="{4 + 7 * math.sqrt(each.rows / total):.1f}"><title>{told}</title></circle>'
        )
    inner.append(
        f'<text x="{(x(0) + x(1)) / 2}" y="{_SQUARE - 6}" text-anchor="middle">confidence</text>'
        f'<text x="{x(0) + 6}" y="{y(1) + 12}">share right</text>'
    )
    return _figure(title, note, inner, width=_SQUARE, height=_SQUARE)


def variant_plot(
    title: str, points: Sequence[tuple[str, float, float, float]], *, chosen: str
) -> str:
    """A figure of quality by size; each point is a name, megabytes, macro-F1 and windows/s.

    A dot's area grows with the speed. `chosen` is drawn in the second colour.
    """
    scores, fastest = [point[2] for point in points], max(point[3] for point in points)
    margin = max(0.01, (max(scores) - min(scores)) / 4)
    low, high = max(0.0, min(scores) - margin), min(1.0, max(scores) + margin)
    top = _round_up(max(point[1] for point in points))
    x = _Scale(0.0, top, low=_LEFT, high=_WIDTH - _RIGHT)
    y = _Scale(low, high, low=_HEIGHT - _BOTTOM, high=_TOP)
    shares = [i / _LINES for i in range(_LINES + 1)]
    inner = [_rule(y(low + share * (high - low)), f"{low + share * (high - low):.3f}")
             for share in shares]  # fmt: skip
    inner += [
        f'<text x="{x(top * share):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
        f"{top * share:g}</text>"
        for share in shares
    ]
    for name, size, score, speed in points:
        radius = 4 + 8 * math.sqrt(speed / fastest)
        told = f"{escape(name)}: {size:.1f} MB, macro-F1 {score:.4f}, {speed:,.0f} windows/s"
        inner.append(
            f'<g class="{"second" if name == chosen else "first"}">'
            f'<circle cx="{x(size):.1f}" cy="{y(score):.1f}" r="{radius:.1f}"><title>{told}</title>'
            f'</circle><text class="name" x="{x(size) + radius + 4:.1f}" y="{y(score) + 4:.1f}">'
            f"{escape(name)}</text></g>"
        )
    note = "macro-F1 by MB; the larger a dot, the faster"
    return _figure(title, note, inner, width=_WIDTH, height=_HEIGHT)


def confusion_plot(
    title: str, labels: Sequence[str], matrix: Sequence[Sequence[int]], *, note: str
) -> str:
    """A figure of records by true label (rows) and answer (columns), shaded by the row's share."""
    numbered = len(labels) <= _NUMBERED_LABELS
    names = [_short(label) for label in labels]
    left = max(len(name) for name in names) * _CHAR + 14 if numbered else 24
    side = min(_GRID / len(labels), 84.0)
    below = (left * 0.75 if numbered else 8) + 22
    inner = list(_cells(labels, matrix, left=left, side=side, numbered=numbered))
    span = side * len(labels)
    inner.append(
        f'<rect class="frame" x="{left:.1f}" y="8" width="{span:.1f}" height="{span:.1f}"/>'
    )
    if numbered:
        inner += _names(names, left=left, side=side)
    inner.append(
        f'<text x="{left + span / 2:.1f}" y="{8 + span + below - 6:.1f}" text-anchor="middle">'
        "answer</text>"
    )
    return _figure(title, note, inner, width=left + span + 12, height=8 + span + below)


def _cells(
    labels: Sequence[str], matrix: Sequence[Sequence[int]], *, left: float, side: float,
    numbered: bool,
) -> Iterator[str]:  # fmt: skip
    for i, row in enumerate(matrix):
        whole = max(1, sum(row))
        for j, count in enumerate(row):
            if not count:
                continue
            x, y, share = left + j * side, 8 + i * side, count / whole
            told = f"{escape(labels[i])} answered as {escape(labels[j])}: {count:,} ({share:.0%})"
            yield (
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{side:.2f}" '
                f'height="{side:.2f}" fill-opacity="{0.06 + 0.7 * share:.2f}">'
                f"<title>{told}</title></rect>"
            )
            if numbered:
                yield (
                    f'<text class="cell" x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" '
                    f'text-anchor="middle">{count:,}</text>'
                )


def _names(names: Sequence[str], *, left: float, side: float) -> Iterator[str]:
    end = 8 + side * len(names)
    for i, name in enumerate(names):
        middle = (i + 0.5) * side
        yield (
            f'<text class="label" x="{left - 8:.1f}" y="{12 + middle:.1f}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        x = left + middle
        yield (
            f'<text class="label" transform="translate({x + 4:.1f} {end + 14:.1f}) rotate(-40)" '
            f'text-anchor="end">{escape(name)}</text>'
        )


def _line(points: Sequence[tuple[float, float, str]]) -> str:
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(told)}</title></circle>'
        for x, y, told in points
    )
    return _polyline([(x, y) for x, y, _ in points]) + dots


def _polyline(points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _rule(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _epoch_marks(epochs: Sequence[int], x: _Scale) -> Iterator[str]:
    """Epochs under the axis, as many as there is room for."""
    every = max(1, math.ceil(len(epochs) / 12))
    for epoch in epochs[::every]:
        yield (
            f'<text x="{x(epoch):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
            f"{epoch}</text>"
        )


def _figure(title: str, note: str, inner: Sequence[str], *, width: float, height: float) -> str:
    return (
        f'<figure>\n<figcaption>{escape(title)} <span class="faint">{escape(note)}</span>'
        f'</figcaption>\n<svg class="plot" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'style="max-width:{width * 1.25:.0f}px" aria-label="{escape(title)}: {escape(note)}">\n'
        + "\n".join(inner)
        + "\n</svg>\n</figure>"
    )


class _Scale:
    """A line from values to places in the drawing; one value alone stands in the middle."""

    def __init__(self, first: float, last: float, *, low: float, high: float) -> None:
        self._first, self._span, self._low, self._high = first, last - first, low, high

    def __call__(self, value: float) -> float:
        share = (value - self._first) / self._span if self._span else 0.5
        return self._low + share * (self._high - self._low)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 times a power of ten, so that lines stand at round numbers."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 4, 6, 8, 10) if value <= step * size * (1 + 1e-9))


def _apart(places: list[float], *, gap: float = 15.0) -> list[float]:
    """Moves the labels of two lines apart where they would meet."""
    if len(places) == 2 and abs(places[0] - places[1]) < gap:
        middle, sign = sum(places) / 2, 1 if places[0] > places[1] else -1
        return [middle + sign * gap / 2, middle - sign * gap / 2]
    return places


def _last_finite(values: Sequence[float]) -> float:
    return next((value for value in reversed(values) if math.isfinite(value)), 0.0)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_CHARS else f"{label[: _LABEL_CHARS - 1]}…"
