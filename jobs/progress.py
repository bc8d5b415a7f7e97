"""How far a scoring run is: a bar on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import logging
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from schemas.manifest import Counters, ShardManifest

_LINE_EVERY_S = 5.0
log = logging.getLogger(__name__)


class Progress:
    """Counts finished shards and says so."""

    def __init__(self, *, rows: int) -> None:
        self._rows = rows
        self._total = Counters()
        self._start = self._last_line = time.monotonic()
        self._bar: RichProgress | None = None
        if sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("scoring", total=rows)
            self._bar.start()

    def add(self, shard_manifest: str) -> None:
        """Adds a finished shard, given as its manifest's JSON."""
        self._total += ShardManifest.model_validate_json(shard_manifest).counters
        if self._bar is not None:
            self._bar.update(self._task, completed=self._total.rows_read)
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._say()

    def close(self) -> None:
        """Ends the bar and logs the whole."""
        if self._bar is not None:
            self._bar.stop()
        self._say()

    def _say(self) -> None:
        seconds = max(time.monotonic() - self._start, 1e-9)
        done = self._total.rows_read
        left = (self._rows - done) * seconds / done if done else float("nan")
        log.info(
            "%d of %d rows, %.0f rows/s, %.0f tokens/s, %d quarantined, %.0f s left",
            done, self._rows, done / seconds, self._total.tokens_inferred / seconds,
            self._total.rows_quarantined, left,
        )  # fmt: skip
