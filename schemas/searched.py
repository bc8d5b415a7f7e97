"""What a search of recipes leaves: each trial, and which one the run takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.manifest import Document

SEARCH_FILE = "search.json"
Settings = dict[str, int | float]


class Trial(Document):
    """One recipe that was tried.

    `macro_f1` is that of the validation records by epoch, so that its length tells where the trial
    ended: it `finished` by itself, was `stopped` for being weak, or `failed` with `error`.
    """

    number: int
    settings: Settings
    macro_f1: tuple[float, ...] = ()
    outcome: Literal["finished", "stopped", "failed"]
    seconds: float = 0.0
    error: str | None = None

    @property
    def best(self) -> float:
        """The highest macro-F1 of its epochs, 0 where there is none."""
        return max(self.macro_f1, default=0.0)


class Searched(Document):
    """`search.json`: the search is over, this is how each trial went, and why one won.

    Trial 0 is the recipe as it would have been. A trial had `epochs` at most and saw
    `sample_fraction` of the training records. `not_searched` are settings that the task file says.
    """

    fingerprint: str
    trials: tuple[Trial, ...] = Field(min_length=1)
    winner: int
    why: str
    epochs: int
    sample_fraction: float = 1.0
    not_searched: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        """What the winner was trained with."""
        return next(trial.settings for trial in self.trials if trial.number == self.winner)
