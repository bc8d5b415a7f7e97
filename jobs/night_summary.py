"""A published night in a few numbers, and the nights before it that it is compared with."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.drift import PROFILE_FILE
from pipeline.outcome_report import read_night
from pipeline.publish import MANIFEST_FILE, Partition
from pipeline.run_report import cost_per_1000_rows, total_s
from schemas.errors import ArtifactError
from schemas.monitor import HeadAnswers, MonitorVerdict, NightSummary
from schemas.profiles import PartitionStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.outcome_report import Night
    from schemas.home import Home
    from schemas.task import TaskConfig

NO_LABEL = "(none)"  # of a multi-label head


def published_dates(home: Home, task: str, *, through: dt.date) -> list[dt.date]:
    """Dates up to `through` that are published, the newest first."""
    found = []
    for path in home.scores(task).glob(f"date=*/{MANIFEST_FILE}"):
        try:
            day = dt.date.fromisoformat(path.parent.name.removeprefix("date="))
        except ValueError:  # a folder of somebody else's
            continue
        if day <= through:
            found.append(day)
    return sorted(found, reverse=True)


def verdict_file(home: Home, task: str, day: dt.date) -> Path:
    """Where it is kept what was seen of a date."""
    return home.monitor(task) / f"date={day}.json"


def read_verdict(home: Home, task: str, day: dt.date) -> MonitorVerdict | None:
    """What was seen of a date, None where nobody has looked or in another version's shape."""
    try:
        return MonitorVerdict.read(verdict_file(home, task, day))
    except ArtifactError:
        return None


def summary_of(task: TaskConfig, home: Home, day: dt.date) -> NightSummary:
    """A published night; what was already kept of the same run is not read again.

    Raises:
        ArtifactError: it is not published, or a file of it is missing.
    """
    night = read_night(home, task.name, day)
    kept = read_verdict(home, task.name, day)
    if kept is not None and kept.night is not None and kept.night.run == night.manifest.run:
        return kept.night
    return _summarise(task, home, night)


def earlier_nights(task: TaskConfig, home: Home, day: dt.date) -> list[NightSummary]:
    """The last `monitor.nights` published nights before a date, the newest first."""
    before = published_dates(home, task.name, through=day - dt.timedelta(days=1))
    found = []
    for date in before[: task.monitor.nights]:
        try:
            found.append(summary_of(task, home, date))
        except ArtifactError:  # damaged since: no reason to say nothing of tonight
            continue
    return found


def _summarise(task: TaskConfig, home: Home, night: Night) -> NightSummary:
    manifest, counters = night.manifest, night.manifest.counters
    scores = _scores(task, home, night)
    seconds = total_s(night.effort) / night.effort.rows_scored if night.effort.rows_scored else None
    return NightSummary(
        date=manifest.date,
        run=manifest.run,
        model=manifest.model,
        rows_read=counters.rows_read,
        rows_scored=counters.rows_scored,
        rows_quarantined=counters.rows_quarantined,
        rows_to_review=counters.rows_to_review,
        languages=_counts(scores["lang"]),
        unknown_share=_unknown_share(home, task.name, manifest.date),
        answers={
            name: _answers(scores[name], scores[f"{name}_confidence"])
            for name in task.heads
            if name in scores.column_names and len(scores)
        },
        seconds_per_1000_rows=None if seconds is None else seconds * 1000,
        cost_per_1000_rows=cost_per_1000_rows(night.effort),
    )


def _scores(task: TaskConfig, home: Home, night: Night) -> pa.Table:
    """The columns that are counted; none of them is a text.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    day = dt.date.fromisoformat(night.manifest.date)
    wanted = ["lang", *task.heads, *(f"{name}_confidence" for name in task.heads)]
    files = Partition(home, task.name, day).scores_files(night.manifest)
    try:
        # A head that came to the task later is in no file of an earlier night.
        tables = [
            file.read(columns=[name for name in wanted if name in file.schema_arrow.names])
            for file in (pq.ParquetFile(path) for path in files)
        ]
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(
            f"scores of {task.name} {day} cannot be read: {error}; `nightmill score {task.name} "
            f"--date {day}` makes them again"
        ) from error
    return pa.concat_tables(tables)


def _answers(labels: pa.ChunkedArray, confidences: pa.ChunkedArray) -> HeadAnswers:
    counts: Counter[str] = Counter()
    if pa.types.is_list(labels.type):
        counts.update(_counts(pc.list_flatten(labels)))
        if empty := pc.sum(pc.equal(pc.list_value_length(labels), 0)).as_py():
            counts[NO_LABEL] = empty
    else:
        counts.update(_counts(labels))
    return HeadAnswers(
        labels=dict(sorted(counts.items())), confidence=round(pc.mean(confidences).as_py(), 6)
    )


def _counts(values: pa.ChunkedArray) -> dict[str, int]:
    return {
        str(item["values"]): item["counts"]
        for item in sorted(pc.value_counts(values).to_pylist(), key=lambda item: item["values"])
    }


def _unknown_share(home: Home, task: str, date: str) -> float | None:
    try:
        path = home.quality(task) / f"date={date}" / PROFILE_FILE
        return PartitionStatistics.read(path).text.unknown_share
    except ArtifactError:
        return None
