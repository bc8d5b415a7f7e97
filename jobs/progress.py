"""How far a scoring run is: a bar on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from schemas.manifest import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

_LINE_EVERY_S = 5.0
log = logging.getLogger(__name__)


def nobody() -> None:
    """Who listens to progress where nobody does."""


class Progress:
    """Counts finished shards and says so; `tell` is called whenever a line is due."""

    def __init__(
        self,
        *,
        rows: int,
        shards: int,
        tell: Callable[[], None] = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._shards = rows, shards
        self._tell, self._clock = tell, clock
        self._done = Counters()
        self._shards_done = self._shards_failed = 0
        self._start = self._last_line = clock()
        self._is_said = False  # whether a line has told all that was added
        self._bar: RichProgress | None = None
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task("scoring", total=rows, figures="")
            self._bar.start()

    def add(self, counters: Counters) -> None:
        """Adds a shard: what became of its rows, nothing at all where it failed."""
        self._done += counters
        if counters.rows_read:
            self._shards_done += 1
        else:
            self._shards_failed += 1
        self._is_said = False
        self._say_if_due()

    def close(self) -> None:
        """Ends the bar and logs the whole, unless the last line was that."""
        if self._bar is not None:
            self._bar.stop()
        self._tell()
        if not self._is_said:
            log.info("%s", self.line())

    def line(self) -> str:
        """The figures in one line."""
        done = self._done
        seconds = max(self._clock() - self._start, 1e-9)
        parts = [
            f"{done.rows_read} of {self._rows} rows",
            f"{self._shards_done} of {self._shards} shards",
            f"{done.rows_read / seconds:.0f} rows/s",
            f"{done.tokens_inferred / seconds:.0f} tokens/s",
            f"{done.rows_quarantined} quarantined",
        ]
        if self._shards_failed:
            parts.append(f"{self._shards_failed} shards failed")
        if 0 < done.rows_read < self._rows:
            left = (self._rows - done.rows_read) * seconds / done.rows_read
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)

    def _say_if_due(self) -> None:
        if self._bar is not None:
            done = self._done
            figures = f"{done.rows_quarantined} quarantined"
            self._bar.update(self._task, completed=done.rows_read, figures=figures)
        if self._clock() - self._last_line < _LINE_EVERY_S:
            return
        self._last_line = self._clock()
        self._tell()
        if self._bar is None:
            log.info("%s", self.line())
            self._is_said = True


def _bar() -> RichProgress:
    return RichProgress(
        TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"),
        TextColumn("{task.fields[figures]}"), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
