"""How far a training worker is and how long the rest may take: a line every half a minute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from jobs.progress import duration
from jobs.ray_training import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

_LINE_EVERY_S = 30.0


class Stage(Protocol):
    """Where fine-tuning or pretraining stands: whole epochs and steps that have ended."""

    epoch: int
    step: int


class Pace:
    """Tells, in `folder`, of the step that is being trained; counts from its own start on.

    A run that goes on where another ended is paced by the steps of its own.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._started = self._last_line = clock()
        self._first: int | None = None
        self._step = self._total = 0

    def on_step(self, progress: Stage, loss: float, total: int) -> None:
        """Takes note of a step of `total` that has ended, and says so if a line is due."""
        if self._first is None:
            self._first = progress.step - 1
        self._step, self._total = progress.step, total
        if self._clock() - self._last_line >= _LINE_EVERY_S:
            self._last_line = self._clock()
            told = {"in_epoch": progress.epoch + 1, "step": self._step, "steps": total}
            tell(self._folder, told | {"loss": loss, "left_s": self.left_s()})

    def left_s(self) -> float:
        """Seconds for the steps to come, as fast as those up to now, validation included."""
        done = self._step - (self._first or 0)
        seconds = self._clock() - self._started
        return (self._total - self._step) * seconds / done if done else 0.0

    def end_epoch(self) -> None:
        """Has the next line wait: an epoch's end has been told."""
        self._last_line = self._clock()


def describe_step(told: Mapping[str, Any]) -> str:
    """A line of `Pace` for the log."""
    return (
        f"epoch {told['in_epoch']}: step {told['step']} of {told['steps']}, loss "
        f"{told['loss']:.4f}, {duration(told['left_s'])} left"
    )
