"""Training workers run in other processes: their epochs are told in this one's log as they end."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.5
log = logging.getLogger(__name__)


@contextmanager
def following(path: Path) -> Iterator[None]:
    """Logs each line that is added to a JSONL file of epochs while the block runs."""
    path.unlink(missing_ok=True)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(path, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(path: Path, ended: threading.Event) -> None:
    told = 0
    while True:
        last = ended.wait(_POLL_S)
        # What follows the last line end is still being written.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        for line in lines[told:]:
            epoch = json.loads(line)
            log.info(
                "epoch %d: train loss %.4f, valid loss %.4f, valid macro-F1 %.4f%s",
                epoch["epoch"], epoch["train_loss"], epoch["valid_loss"],
                epoch["valid_macro_f1"], " (best so far)" if epoch["is_best"] else "",
            )  # fmt: skip
        told = len(lines)
        if last:
            return
