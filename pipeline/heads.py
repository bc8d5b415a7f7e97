"""From logits to answers: activation, pooling over windows, labels, confidence, decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.scope import rule_scores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.scope import ScopeRule
    from schemas.task import HeadConfig, WindowPooling

Array = npt.NDArray[np.float64]
Decision = Literal["auto", "review"]
MULTI_THRESHOLD = 0.5


@dataclass(frozen=True)
class Answer:
    """What one head says of one record: its label or labels, confidence, and `(L,)` scores.

    `window` is the index of the window that speaks most for the answer. `scope` is how well the
    head's labels fit the text, and `outside` says that it is less than its rule asks; without a
    rule there is no such score, and nothing is outside.
    """

    labels: tuple[str, ...]
    confidence: float
    scores: Array
    window: int = 0
    scope: float | None = None
    outside: bool = False


@dataclass(frozen=True)
class HeadSlice:
    """One head, its columns in the model's `(W, L)` logits, and its rule for texts outside."""

    name: str
    config: HeadConfig
    start: int
    temperature: float = 1.0
    scope_rule: ScopeRule | None = None

    @property
    def columns(self) -> slice:
        """Columns of the logits that belong to this head."""
        return slice(self.start, self.start + self.config.n_scores)


def head_slices(
    heads: Mapping[str, HeadConfig],
    temperatures: Mapping[str, float] | None = None,
    *,
    scopes: Mapping[str, ScopeRule] | None = None,
) -> tuple[HeadSlice, ...]:
    """Heads laid side by side in the order of the config; `scopes` are rules by head.

    A rule only counts where the head is configured with `outside`.
    """
    slices, start = [], 0
    for name, config in heads.items():
        temperature = (temperatures or {}).get(name, 1.0)
        rule = (scopes or {}).get(name) if config.outside is not None else None
        slices.append(HeadSlice(name, config, start, temperature, rule))
        start += config.n_scores
    return tuple(slices)


def scaled_logits(logits: npt.NDArray[Any], head: HeadSlice) -> Array:
    """The columns `(W, L)` of one head, by its temperature."""
    return np.asarray(logits[:, head.columns].astype(np.float64) / head.temperature)


def probabilities(logits: Array, head: HeadSlice) -> Array:
    """Probabilities `(W, L)` of one head: softmax for `single`, sigmoid for `multi`.

    For `aspect` a softmax over the choices of each aspect.
    """
    scaled = scaled_logits(logits, head)
    if head.config.kind == "multi":
        return 1.0 / (1.0 + np.exp(-np.clip(scaled, -60.0, 60.0)))
    if head.config.kind == "aspect":
        return _softmax(by_aspect(scaled, head)).reshape(scaled.shape)
    return _softmax(scaled)


def _softmax(scaled: Array) -> Array:
    shifted = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def by_aspect(values: npt.NDArray[Any], head: HeadSlice) -> npt.NDArray[Any]:
    """The columns `(R, L)` of an `aspect` head as `(R, A, P + 1)`, the choice `none` first."""
    return values.reshape(len(values), len(head.config.aspects), len(head.config.labels) + 1)


def predicted_labels(scores: npt.NDArray[Any], head: HeadSlice) -> npt.NDArray[Any]:
    """Label index `(N,)`, for `multi` yes/no flags `(N, L)`, for `aspect` choices `(N, A)`.

    Of choices 0 is `none`, and others the label's index + 1. The first of equal ones wins.
    """
    if head.config.kind == "multi":
        return np.asarray(scores >= MULTI_THRESHOLD)
    grid = by_aspect(scores, head) if head.config.kind == "aspect" else scores
    return np.asarray(grid.argmax(axis=-1))


def confidences(scores: npt.NDArray[Any], head: HeadSlice) -> npt.NDArray[Any]:
    """How sure each of the `predicted_labels` is, in their shape."""
    if head.config.kind == "multi":
        return np.asarray(np.maximum(scores, 1.0 - scores))
    grid = by_aspect(scores, head) if head.config.kind == "aspect" else scores
    return np.asarray(grid.max(axis=-1))


def aggregate(window_probabilities: Array, n_tokens: npt.NDArray[np.int64]) -> Array:
    """Mean `(L,)` of a record's windows `(W, L)`, each weighted by its tokens."""
    weights = n_tokens / n_tokens.sum()
    return np.asarray(weights @ window_probabilities)


def pool_logits(logits: Array, n_tokens: npt.NDArray[np.int64], pooling: WindowPooling) -> Array:
    """A record's logits `(L,)` from those of its windows `(W, L)`, as training pools them.

    For `attention` they are `(W, L + 1)`: the last column, by softmax, is each window's weight.
    """
    if pooling == "first":
        return np.asarray(logits[0])
    if pooling == "max":
        return np.asarray(logits.max(axis=0))
    if pooling == "attention":
        return np.asarray(_softmax(logits[:, -1]) @ logits[:, :-1])
    return aggregate(logits, n_tokens)


def record_scores(
    logits: Array, n_tokens: npt.NDArray[np.int64], head: HeadSlice, *, pooling: WindowPooling
) -> Array:
    """Probabilities `(L,)` of one record from the logits `(W, L_all)` of its windows.

    `mean` is that of the windows' probabilities, weighted by tokens: a window that is sure of its
    answer has no more than its share of it. Other ways pool logits, as the model was trained to.
    """
    if pooling == "mean":
        return aggregate(probabilities(logits, head), n_tokens)
    return np.asarray(probabilities(pool_logits(logits, n_tokens, pooling)[None], head)[0])


def answer(
    logits: Array,
    n_tokens: npt.NDArray[np.int64],
    head: HeadSlice,
    *,
    pooling: WindowPooling = "mean",
) -> Answer:
    """One head's answer from the logits `(W, L_all)` of all windows of a record."""
    (only,) = answers(logits, n_tokens, np.array([len(logits)]), head, pooling=pooling)
    return only


def answers(
    logits: Array,
    n_tokens: npt.NDArray[np.int64],
    n_windows: npt.NDArray[np.int64],
    head: HeadSlice,
    *,
    pooling: WindowPooling = "mean",
) -> list[Answer]:
    """One head's answers for R records from the logits `(W, L_all)` of all their windows.

    `n_tokens` `(W,)` is by window, `n_windows` `(R,)` by record. Each answer is the one, to the
    last bit, that the record would get without the others.

    The confidence of a `multi` or `aspect` head is that of its least certain label or aspect, for
    one doubtful tag is enough to want a person's look. For its answer speaks most the window with
    the highest probability of any chosen label, of any label at all where none is chosen.
    """
    by_window = probabilities(logits, head)
    starts = np.cumsum(n_windows) - n_windows
    # One window pooled in any way is that window; only the others are worth a step of their own.
    several = {
        row: slice(starts[row], starts[row] + n_windows[row])
        for row in np.flatnonzero(n_windows > 1).tolist()
    }
    scores = by_window[starts]
    for row, span in several.items():
        scores[row] = record_scores(logits[span], n_tokens[span], head, pooling=pooling)
    sure = confidences(scores, head)
    if sure.ndim == 2:
        sure = sure.min(axis=1)
    is_chosen = flags_of(predicted_labels(scores, head), head)
    telling = [0] * len(scores)
    for row, span in several.items():
        telling[row] = _telling_window(label_scores(by_window[span], head), is_chosen[row])
    labels = _chosen_labels(is_chosen, head.config.answer_labels)
    found = [Answer(*parts) for parts in zip(labels, sure.tolist(), scores, telling, strict=True)]
    if (rule := head.scope_rule) is None:
        return found
    stop = max(head.columns.stop, 0 if rule.column is None else rule.column + 1)
    pooled = logits[starts, :stop]
    for row, span in several.items():
        pooled[row] = pool_logits(logits[span], n_tokens[span], pooling)[:stop]
    return _scoped(found, pooled, head, rule)


def _scoped(found: list[Answer], logits: Array, head: HeadSlice, rule: ScopeRule) -> list[Answer]:
    """The answers with how well the labels fit, from the records' pooled outputs `(R, M)`."""
    scores = rule_scores(rule, scaled_logits(logits, head), logits).tolist()
    return [
        replace(each, scope=score, outside=score < rule.threshold)
        for each, score in zip(found, scores, strict=True)
    ]


def _telling_window(by_window: Array, is_chosen: npt.NDArray[np.bool_]) -> int:
    telling = by_window[:, is_chosen] if is_chosen.any() else by_window
    return int(telling.max(axis=1).argmax())


def label_scores(scores: Array, head: HeadSlice) -> Array:
    """The columns of `scores` `(R, L)` that stand for labels: for `aspect` all but `none`."""
    if head.config.kind != "aspect":
        return scores
    labels = by_aspect(scores, head)[:, :, 1:]
    return np.asarray(labels.reshape(len(scores), labels.shape[1] * labels.shape[2]))


def flags_of(predicted: npt.NDArray[Any], head: HeadSlice) -> npt.NDArray[np.bool_]:
    """Flags `(N, M)` of the head's `answer_labels` from its `predicted_labels`."""
    if head.config.kind == "multi":
        return predicted.astype(np.bool_)
    first = 1 if head.config.kind == "aspect" else 0
    flags = np.asarray(predicted[..., None] == np.arange(first, first + len(head.config.labels)))
    return flags.reshape(len(predicted), len(head.config.aspects or (0,)) * flags.shape[-1])


def _chosen_labels(
    is_chosen: npt.NDArray[np.bool_], labels: tuple[str, ...]
) -> list[tuple[str, ...]]:
    chosen: list[tuple[str, ...]] = [()] * len(is_chosen)
    for row, column in zip(*(where.tolist() for where in is_chosen.nonzero()), strict=True):
        chosen[row] = (*chosen[row], labels[column])
    return chosen


def decide(answers: Mapping[str, Answer], heads: tuple[HeadSlice, ...]) -> Decision:
    """`review` when any head is less sure than its `review_below` or has no fitting label."""
    for head in heads:
        given = answers[head.name]
        if given.outside or given.confidence < head.config.review_below:
            return "review"
    return "auto"
