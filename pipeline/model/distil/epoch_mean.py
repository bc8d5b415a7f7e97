"""A loss's mean over the steps of an epoch, from the shares that ranks and parts have of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pipeline.model.ranks import gather

if TYPE_CHECKING:
    from torch import Tensor


class EpochMean:
    """Shares of a step's loss go in; what a step's repeated passes have is added up like parts."""

    def __init__(self) -> None:
        self._by_step = defaultdict[int, float](float)

    def add(self, share: Tensor, *, step: int) -> None:
        """Notes one share."""
        self._by_step[step] += float(share.detach())

    def take(self) -> float:
        """The mean over steps, and begins anew; all ranks call it together."""
        steps = defaultdict[int, float](float)
        for part in gather(dict(self._by_step)):
            for step, share in part.items():
                steps[step] += share
        self._by_step.clear()
        return sum(steps.values()) / max(1, len(steps))
