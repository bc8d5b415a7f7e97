"""From logits to answers: activation, aggregation over windows, labels, confidence, decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.task import HeadConfig

Array = npt.NDArray[np.float64]
Decision = Literal["auto", "review"]
MULTI_THRESHOLD = 0.5


@dataclass(frozen=True)
class Answer:
    """What one head says of one record: its label or labels, confidence, and `(L,)` scores.

    `window` is the index of the window that speaks most for the answer.
    """

    labels: tuple[str, ...]
    confidence: float
    scores: Array
    window: int = 0


@dataclass(frozen=True)
class HeadSlice:
    """One head and its columns in the model's `(W, L)` logits."""

    name: str
    config: HeadConfig
    start: int
    temperature: float = 1.0

    @property
    def columns(self) -> slice:
        """Columns of the logits that belong to this head."""
        return slice(self.start, self.start + len(self.config.labels))


def head_slices(
    heads: Mapping[str, HeadConfig], temperatures: Mapping[str, float] | None = None
) -> tuple[HeadSlice, ...]:
    """Heads laid side by side in the order of the config."""
    slices, start = [], 0
    for name, config in heads.items():
        temperature = (temperatures or {}).get(name, 1.0)
        slices.append(HeadSlice(name, config, start, temperature))
        start += len(config.labels)
    return tuple(slices)


def probabilities(logits: Array, head: HeadSlice) -> Array:
    """Probabilities `(W, L)` of one head: softmax for `single`, sigmoid for `multi`."""
    scaled = logits[:, head.columns].astype(np.float64) / head.temperature
    if head.config.kind == "multi":
        return 1.0 / (1.0 + np.exp(-np.clip(scaled, -60.0, 60.0)))
    shifted = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def aggregate(window_probabilities: Array, n_tokens: npt.NDArray[np.int64]) -> Array:
    """Mean `(L,)` of a record's windows `(W, L)`, each weighted by its tokens."""
    weights = n_tokens / n_tokens.sum()
    return np.asarray(weights @ window_probabilities)


def answer(logits: Array, n_tokens: npt.NDArray[np.int64], head: HeadSlice) -> Answer:
    """One head's answer from the logits `(W, L_all)` of all windows of a record.

    The confidence of a `multi` head is that of its least certain label, for one doubtful tag is
    enough to want a person's look. For its answer speaks most the window with the highest
    probability of any chosen label, of any label at all where none is chosen.
    """
    by_window = probabilities(logits, head)
    scores = aggregate(by_window, n_tokens)
    labels = head.config.labels
    if head.config.kind == "single":
        best = int(scores.argmax())
        window = int(by_window[:, best].argmax())
        return Answer((labels[best],), float(scores[best]), scores, window)
    is_chosen = scores >= MULTI_THRESHOLD
    chosen = tuple(label for label, yes in zip(labels, is_chosen, strict=True) if yes)
    telling = by_window[:, is_chosen] if chosen else by_window
    confidence = float(np.maximum(scores, 1.0 - scores).min())
    return Answer(chosen, confidence, scores, int(telling.max(axis=1).argmax()))


def decide(answers: Mapping[str, Answer], heads: tuple[HeadSlice, ...]) -> Decision:
    """`review` when any head is less sure than its `review_below`, else `auto`."""
    unsure = any(answers[head.name].confidence < head.config.review_below for head in heads)
    return "review" if unsure else "auto"
