"""Seconds by step: where a worker's or a driver's time has gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


class StepClock:
    """A clock whose hand is set back at the end of each step; steps of one name add up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._last = clock()

    def lap(self, step: str) -> None:
        """Ends a step: it took the time since the last one ended."""
        now = self._clock()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now

    def until_read(self, items: Iterable[T], step: str) -> Iterator[T]:
        """The items; their consumer's step ends when it has taken the last one."""
        yield from items
        self.lap(step)
