"""By what records are told apart when quality is looked at slice by slice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from pipeline.model.labelled import Example
    from schemas.task import DataConfig

TIME = "time"
_MAX_VALUES = 20
_OTHERS = "others"
_MAX_PERIODS = 12
_EARLIER, _UNKNOWN = "earlier", "unknown"


@dataclass(frozen=True)
class Facet:
    """One way to cut records: a value for each, and the values in the order to show them."""

    name: str
    values: tuple[str, ...]
    order: tuple[str, ...]


def facets_of(examples: Sequence[Example], data: DataConfig) -> list[Facet]:
    """Language, length in quartiles, source file where the ids name it, and time where it is known.

    A facet that has one value alone tells nothing and is left out.
    """
    found = [
        _by_frequency("language", [example.lang for example in examples]),
        _length_quartiles(examples),
    ]
    if data.id_column is None:  # then a record is named by file and row
        files = [example.record_id.rpartition(":")[0] for example in examples]
        found.append(_by_frequency("source file", files))
    found.append(_by_time([example.day for example in examples]))
    return [facet for facet in found if len(facet.order) > 1]


def _by_frequency(name: str, values: Sequence[str]) -> Facet:
    """The most frequent values, all others in one."""
    order = [value for value, _ in Counter(values).most_common(_MAX_VALUES)]
    if len(set(values)) > len(order):
        values = [value if value in order else _OTHERS for value in values]
        order.append(_OTHERS)
    return Facet(name, tuple(values), tuple(order))


def _by_time(days: Sequence[dt.date | None]) -> Facet:
    """ISO weeks, or months where weeks would be too many; the latest ones, all others in one.

    So the newest records, which are the likest to what comes, are looked at most closely.
    """
    known = [day for day in days if day is not None]
    in_weeks = bool(known) and (max(known) - min(known)).days < 7 * _MAX_PERIODS
    values = [_UNKNOWN if day is None else _period(day, in_weeks=in_weeks) for day in days]
    periods = sorted({*values} - {_UNKNOWN})
    latest = periods[-_MAX_PERIODS:]
    if len(periods) > len(latest):
        values = [value if value in {*latest, _UNKNOWN} else _EARLIER for value in values]
        latest = [_EARLIER, *latest]
    return Facet(TIME, tuple(values), (*latest, *([_UNKNOWN] if _UNKNOWN in values else [])))


def _period(day: dt.date, *, in_weeks: bool) -> str:
    """A name that sorts by time: `2026-W05` or `2026-02`."""
    if not in_weeks:
        return f"{day:%Y-%m}"
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02}"


def _length_quartiles(examples: Sequence[Example]) -> Facet:
    """Tokens that the model reads of a record, all windows together, in four parts of equal size.

    Parts that would have the same bounds, as where most texts are equally long, are one.
    """
    tokens = np.array([sum(window.n_tokens for window in example.windows) for example in examples])
    edges = np.unique(np.quantile(tokens, [0, 0.25, 0.5, 0.75, 1], method="higher"))
    lows = edges[:-1] if len(edges) > 1 else edges
    places = np.clip(np.searchsorted(lows, tokens, side="right") - 1, 0, len(lows) - 1)
    names = [
        f"{tokens[places == place].min()} to {tokens[places == place].max()} tokens"
        for place in range(len(lows))
    ]
    return Facet("length", tuple(names[place] for place in places), tuple(names))
