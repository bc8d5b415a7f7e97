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
    """One head's answer from the logits `(W, L_all)` of all windows of a record."""
    (only,) = answers(logits, n_tokens, np.array([len(logits)]), head)
    return only


def answers(
    logits: Array,
    n_tokens: npt.NDArray[np.int64],
    n_windows: npt.NDArray[np.int64],
    head: HeadSlice,
) -> list[Answer]:
    """One head's answers for R records from the logits `(W, L_all)` of all their windows.

    `n_tokens` `(W,)` is by window, `n_windows` `(R,)` by record. Each answer is the one, to the
    last bit, that the record would get without the others.

    The confidence of a `multi` head is that of its least certain label, for one doubtful tag is
    enough to want a person's look. For its answer speaks most the window with the highest
    probability of any chosen label, of any label at all where none is chosen.
    """
    by_window = probabilities(logits, head)
    starts = np.cumsum(n_windows) - n_windows
    # The mean over one window is that window; only the others are worth a step of their own.
    several = {
        row: slice(starts[row], starts[row] + n_windows[row])
        for row in np.flatnonzero(n_windows > 1).tolist()
    }
    scores = by_window[starts]
    for row, span in several.items():
        scores[row] = aggregate(by_window[span], n_tokens[span])
    if head.config.kind == "single":
        is_chosen, sure = _best_only(scores), scores.max(axis=1)
    else:
        is_chosen, sure = scores >= MULTI_THRESHOLD, np.maximum(scores, 1.0 - scores).min(axis=1)
    telling = [0] * len(scores)
    for row, span in several.items():
        telling[row] = _telling_window(by_window[span], is_chosen[row])
    labels = _chosen_labels(is_chosen, head.config.labels)
    return [Answer(*parts) for parts in zip(labels, sure.tolist(), scores, telling, strict=True)]


def _telling_window(by_window: Array, is_chosen: npt.NDArray[np.bool_]) -> int:
    telling = by_window[:, is_chosen] if is_chosen.any() else by_window
    return int(telling.max(axis=1).argmax())


def _best_only(scores: Array) -> npt.NDArray[np.bool_]:
    """Marks the best label of each row, the first of equal ones."""
    marks: npt.NDArray[np.bool_] = np.arange(scores.shape[1]) == scores.argmax(axis=1)[:, None]
    return marks


def _chosen_labels(
    is_chosen: npt.NDArray[np.bool_], labels: tuple[str, ...]
) -> list[tuple[str, ...]]:
    chosen: list[tuple[str, ...]] = [()] * len(is_chosen)
    for row, column in zip(*(where.tolist() for where in is_chosen.nonzero()), strict=True):
        chosen[row] = (*chosen[row], labels[column])
    return chosen


def decide(answers: Mapping[str, Answer], heads: tuple[HeadSlice, ...]) -> Decision:
    """`review` when any head is less sure than its `review_below`, else `auto`."""
    unsure = any(answers[head.name].confidence < head.config.review_below for head in heads)
    return "review" if unsure else "auto"
