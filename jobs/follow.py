"""Training workers run in other processes: their epochs are told in this one's log as they end."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_POLL_S = 0.5
log = logging.getLogger(__name__)


@contextmanager
def following(path: Path, *, describe: Callable[[Mapping[str, Any]], str]) -> Iterator[None]:
    """Logs each line that is added to a JSONL file while the block runs, as `describe` puts it."""
    path.unlink(missing_ok=True)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(path, ended, describe), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(
    path: Path, ended: threading.Event, describe: Callable[[Mapping[str, Any]], str]
) -> None:
    told = 0
    while True:
        last = ended.wait(_POLL_S)
        # What follows the last line end is still being written.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        for line in lines[told:]:
            log.info("%s", describe(json.loads(line)))
        told = len(lines)
        if last:
            return
