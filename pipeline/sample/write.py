"""Sample files into the home: history to learn from, days to score, and what people decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import TYPE_CHECKING

from pipeline.sample.batch import draw_stamps, file_content, make_rows, outcome_content
from pipeline.sample.kinds import KINDS, Kind
from schemas.errors import ConfigError
from schemas.manifest import write_atomically
from schemas.partition import date_range

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.home import Home

FIRST_DATE = date(2026, 11, 22)
HISTORY_DAYS = 120
HISTORY_DIRT_SCALE = 0.4  # labelled rows went through people's hands


@dataclass(frozen=True)
class SamplePlan:
    """How much is written; `rows` is per day and kind, `history_rows` per kind.

    Raises:
        ConfigError: a number is out of range.
    """

    first_date: date = FIRST_DATE
    days: int = 7
    rows: int = 200
    history_rows: int = 1600
    seed: int = 7
    dates: tuple[date, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("days", "rows", "history_rows"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"sample: {name} must be at least 1, got {value}")
        last = self.first_date + timedelta(days=self.days - 1)
        object.__setattr__(self, "dates", date_range(self.first_date, last))


@dataclass(frozen=True)
class FolderCount:
    """What was written into one folder; `faulty_rows` are those a reader has to reject."""

    files: int = 0
    rows: int = 0
    faulty_rows: int = 0

    def __add__(self, other: FolderCount) -> FolderCount:
        return FolderCount(
            self.files + other.files,
            self.rows + other.rows,
            self.faulty_rows + other.faulty_rows,
        )


@dataclass(frozen=True)
class _SampleFile:
    folder: str  # below the home
    name: str
    content: bytes
    rows: int
    faulty_rows: int = 0


def write_samples(home: Home, plan: SamplePlan) -> dict[str, FolderCount]:
    """Writes all files of the plan and answers what lies where, by folder below the home.

    The same plan gives the same bytes; more days leave the earlier ones as they are. Files that
    the plan does not name are left alone.

    Raises:
        ConfigError: a place to write to is not a folder.
    """
    counts: dict[str, FolderCount] = {}
    for kind in KINDS:
        for file in _files(kind, plan):
            _write(home.root / file.folder / file.name, file.content)
            count = FolderCount(1, file.rows, file.faulty_rows)
            counts[file.folder] = counts.get(file.folder, FolderCount()) + count
    return counts


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(
            f"cannot write {path}: a folder above it is a file; choose another --home"
        ) from None


def _files(kind: Kind, plan: SamplePlan) -> Iterator[_SampleFile]:
    yield _history(kind, plan)
    for day in plan.dates:
        yield from _day(kind, plan, day)


def _history(kind: Kind, plan: SamplePlan) -> _SampleFile:
    rng = Random(f"{plan.seed}/{kind.task}/history/{plan.first_date}")
    days = [plan.first_date - timedelta(days=back) for back in range(HISTORY_DAYS, 0, -1)]
    stamps = draw_stamps(days, plan.history_rows, rng)
    rows = make_rows(kind, stamps, rng, labelled=True, dirt_scale=HISTORY_DIRT_SCALE)
    return _SampleFile(
        folder=f"labelled/{kind.task}",
        name=f"history.{kind.format_name}",
        content=file_content(kind, rows, labelled=True),
        rows=len(rows),
        faulty_rows=sum(row.fault is not None for row in rows),
    )


def _day(kind: Kind, plan: SamplePlan, day: date) -> Iterator[_SampleFile]:
    rng = Random(f"{plan.seed}/{kind.task}/incoming/{day}")
    rows = make_rows(kind, draw_stamps([day], plan.rows, rng), rng, labelled=False, dirt_scale=1.0)
    faulty = sum(row.fault is not None for row in rows)
    yield _SampleFile(
        folder=f"incoming/{kind.task}/date={day}",
        name=f"{kind.task}.{kind.format_name}",
        content=file_content(kind, rows, labelled=False),
        rows=len(rows),
        faulty_rows=faulty,
    )
    yield _SampleFile(
        folder=f"outcomes/{kind.task}",
        name=f"date={day}.{kind.format_name}",
        content=outcome_content(kind, rows, rng),
        rows=len(rows) - faulty,
    )
