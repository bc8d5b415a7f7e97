"""A job that ends itself when nobody waits for it any more.

Whoever submitted the job to a cluster rewrites a file, its lease, again and again. The job looks
whether the file's content changes and counts the time by its own monotonic clock, so that clocks
that differ do no harm.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from schemas.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LEASE_VARIABLE = "NIGHTMILL_LEASE"
SECONDS_VARIABLE = "NIGHTMILL_LEASE_S"
DEFAULT_LEASE_S = 120.0
_LOOKS_PER_LEASE = 20
_LONGEST_WAIT_S = 5.0
_CHILDREN_END_S = 3.0
log = logging.getLogger(__name__)


def end_family() -> None:
    """Ends all processes that this one has started, and then this one at once."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        _signal(child.terminate)
    _, left = psutil.wait_procs(children, timeout=_CHILDREN_END_S)
    for child in left:
        _signal(child.kill)
    # The kernel takes a moment: who sees this process gone may count on the others being gone.
    psutil.wait_procs(left, timeout=_CHILDREN_END_S)
    os._exit(TransientError.exit_code)


@contextmanager
def lease_watched(
    environment: Mapping[str, str] = os.environ, *, end: Callable[[], None] = end_family
) -> Iterator[None]:
    """Calls `end` when the lease that the environment names lapses while inside.

    `NIGHTMILL_LEASE` is the file, none of it means that nobody need wait; `NIGHTMILL_LEASE_S` is
    how many seconds it may stay as it is.

    Raises:
        ConfigError: these seconds are no positive number.
    """
    if not (name := environment.get(LEASE_VARIABLE)):
        yield
        return
    lease_s = _seconds(environment)
    left = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(Path(name), lease_s, left, end), daemon=True, name="lease"
    )
    watch.start()
    try:
        yield
    finally:
        left.set()


def _seconds(environment: Mapping[str, str]) -> float:
    value = environment.get(SECONDS_VARIABLE) or str(DEFAULT_LEASE_S)
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{SECONDS_VARIABLE}: expected a positive number, got {value!r}")
    return seconds


def _watch(file: Path, lease_s: float, left: threading.Event, end: Callable[[], None]) -> None:
    every_s = min(lease_s / _LOOKS_PER_LEASE, _LONGEST_WAIT_S)
    content, looked_at, silent_s = _content(file), time.monotonic(), 0.0
    while not left.wait(every_s):
        now = _content(file)
        # A machine that was frozen for an hour has not waited for an hour: a look counts for two
        # at most.
        silent_s += min(time.monotonic() - looked_at, 2 * every_s)
        looked_at = time.monotonic()
        if now is not None and now != content:
            content, silent_s = now, 0.0
        elif silent_s >= lease_s:
            log.error(
                "TransientError: lease %s was not renewed for %.0f s: nobody waits for this job "
                "any more, so it ends itself; what is finished is kept, run it again",
                file,
                lease_s,
            )
            end()
            return


def _content(file: Path) -> bytes | None:
    """The lease, or None while it cannot be read, which counts as not renewed."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.Error:
        log.debug("a child process has ended before")
