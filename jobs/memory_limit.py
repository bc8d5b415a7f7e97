"""A worker that ends itself before the kernel ends another one."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUT_OF_MEMORY_EXIT_CODE = 137  # what a process has that the kernel killed for its memory
_LOOK_EVERY_S = 0.05
_PAGES = Path("/proc/self/statm")
log = logging.getLogger(__name__)


def resident_mib() -> int:
    """Memory that this process holds, in MiB.

    Raises:
        ConfigError: this system does not tell.
    """
    try:
        pages = int(_PAGES.read_text().split()[1])
    except OSError:
        raise ConfigError("score.max_worker_mib needs Linux; leave it empty here") from None
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def end_process() -> None:
    """Ends this process at once: whoever waits for it learns that from its exit."""
    os._exit(OUT_OF_MEMORY_EXIT_CODE)


@contextmanager
def memory_limit(
    mib: int | None,
    *,
    resident: Callable[[], int] = resident_mib,
    end: Callable[[], None] = end_process,
) -> Iterator[None]:
    """Ends the process when it holds more than `mib` MiB while inside; None sets no limit."""
    if mib is None:
        yield
        return
    left = threading.Event()
    watch = threading.Thread(target=_watch, args=(mib, left, resident, end), daemon=True)
    watch.start()
    try:
        yield
    finally:
        left.set()
        watch.join()


def _watch(
    mib: int, left: threading.Event, resident: Callable[[], int], end: Callable[[], None]
) -> None:
    while not left.wait(_LOOK_EVERY_S):
        if (held := resident()) > mib:
            log.error("worker holds %d MiB, allowed are %d (score.max_worker_mib)", held, mib)
            end()
            return
