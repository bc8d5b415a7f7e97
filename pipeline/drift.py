"""How far a partition may be from the dates before it: bounds from their profiles."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.errors import ArtifactError
from schemas.profiles import PartitionStatistics

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from schemas.task import DriftRule

PROFILE_FILE = "profile.json"


@dataclass(frozen=True)
class DriftBounds:
    """The lowest and highest number of rows, and null share by column, that are nothing new.

    `dates` are the partitions they come from; without bounds there were too few.
    """

    dates: tuple[str, ...] = ()
    rows: tuple[float, float] | None = None
    null_share: dict[str, tuple[float, float]] = field(default_factory=dict)


def read_history(folder: Path, *, before: dt.date, partitions: int) -> list[PartitionStatistics]:
    """Profiles of the last `partitions` dates before a date that have one, oldest first.

    `folder` holds a task's `date=D/profile.json`. One that an older version left in another shape
    is as good as none.
    """
    found: list[PartitionStatistics] = []
    for path in sorted(folder.glob(f"date=*/{PROFILE_FILE}"), reverse=True):
        if path.parent.name >= f"date={before}":
            continue
        try:
            found.append(PartitionStatistics.read(path))
        except ArtifactError:
            continue
        if len(found) == partitions:
            break
    return found[::-1]


def drift_bounds(history: Sequence[PartitionStatistics], rule: DriftRule) -> DriftBounds:
    """Bounds around the median of volumes and the mean of null shares."""
    dates = tuple(each.date for each in history)
    if len(history) < rule.min_partitions:
        return DriftBounds(dates)
    median = statistics.median(each.rows for each in history)
    rows = (median / rule.max_volume_factor, median * rule.max_volume_factor) if median else None
    null_share = {}
    for column in sorted({name for each in history for name in each.null_share}):
        shares = [each.null_share[column] for each in history if column in each.null_share]
        if len(shares) >= rule.min_partitions:
            null_share[column] = _around(shares, rule.max_null_share_change)
    return DriftBounds(dates, rows, null_share)


def _around(shares: Iterable[float], change: float) -> tuple[float, float]:
    mean = statistics.fmean(shares)
    return max(0.0, mean - change), min(1.0, mean + change)
