"""Intervals by bootstrap over records, fast enough to have one beside every figure.

Records with the same truth and answers are alike to every score. So a resample is a draw of how
often each distinct pattern occurs (multinomial), which is the bootstrap itself, only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.heads import flags_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.heads import HeadSlice

Integers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]
Interval = tuple[float, float]

_RESAMPLES = 500
_LEVELS = (0.025, 0.975)


@dataclass(frozen=True)
class Patterns:
    """Distinct rows of truth and several predictions, and how often they occur `(K,)`.

    `equal` has for each prediction the share of a row's answers `(K,)` that are right: of one, or
    of several where a head gives several. `flags` `(K, L)` mark the labels of truth and of each
    prediction. Labels that occur nowhere are in no mean, but in that of a `multi` head
    (`present_only`), as in `metrics`.
    """

    equal: tuple[Weights, ...]
    flags: tuple[Weights, ...]
    counts: Weights
    present_only: bool

    @classmethod
    def of(cls, *columns: Integers, head: HeadSlice) -> Patterns:
        """From truth and predictions, each in the form of `predicted_labels`."""
        is_single = columns[0].ndim == 1
        flat = [column[:, None] if is_single else column for column in columns]
        rows, counts = np.unique(np.hstack(flat), axis=0, return_counts=True)
        truth, *answers = np.split(rows, len(columns), axis=1)
        shaped = [part[:, 0] if is_single else part for part in (truth, *answers)]
        return cls(
            equal=tuple((truth == answer).mean(axis=1) for answer in answers),
            flags=tuple(flags_of(part, head).astype(float) for part in shaped),
            counts=counts.astype(float),
            present_only=head.config.kind != "multi",
        )

    def resamples(self, seed: int) -> Iterator[Weights]:
        """How often each pattern `(K,)` occurs in each of the resamples."""
        chooser = np.random.default_rng(seed)
        total = int(self.counts.sum())
        for _ in range(_RESAMPLES):
            yield chooser.multinomial(total, self.counts / total).astype(float)

    def accuracy(self, weights: Weights, which: int = 1) -> float:
        """Share of answers that are right, of the first prediction or another."""
        return float(weights @ self.equal[which - 1] / weights.sum())

    def f1(self, weights: Weights, which: int = 1, *, by_support: bool = False) -> float:
        """Mean of the labels' F1: each the same, or by the records that have the label."""
        truth, predicted = self.flags[0], self.flags[which]
        support = weights @ truth
        both = support + weights @ predicted
        scores = 2 * (weights @ (truth * predicted)) / np.maximum(both, 1)
        if by_support:
            return float(scores @ support / support.sum()) if support.any() else 0.0
        present = both > 0 if self.present_only else np.ones(len(both), dtype=bool)
        return float(scores[present].mean()) if present.any() else 0.0


def interval(patterns: Patterns, score: Callable[[Weights], float], *, seed: int) -> Interval:
    """95 % bootstrap interval of a score, a function of how often each pattern occurs."""
    low, high = np.quantile([score(weights) for weights in patterns.resamples(seed)], _LEVELS)
    return round(float(low), 4), round(float(high), 4)
