"""From clean texts to answers: windows, logits, aggregation, decision.

What stands behind `Inference` may be a model, a memory of earlier answers, or two models in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.ahead import ahead
from pipeline.heads import Answer, Decision, HeadSlice, answers, decide
from schemas.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.flow import Prepared, TextFlow
    from pipeline.window import Window, Windows
    from schemas.manifest import ModelRef
    from schemas.task import WindowPooling

# Tokens held as windows at once: bounds memory, and is many times what one call of an encoder needs
# to find windows of equal length.
_TOKENS_AT_ONCE = 1 << 16


class Encoder(Protocol):
    """Windows into logits."""

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)`; a window's row must not depend on the other windows."""


@dataclass(frozen=True)
class Inferred:
    """The answers for one text; none where the model's numbers were not finite.

    `windows_made`, `windows_aggregated` and `tokens` are the work that it takes; `remembered` says
    that it was done earlier. `model` is the one that answered, where it is not the run's.
    """

    answers: Mapping[str, Answer]
    decision: Decision
    spans: tuple[tuple[int, int], ...]
    truncated: bool
    windows_made: int = 0
    windows_aggregated: int = 0
    tokens: int = 0
    remembered: bool = False
    model: ModelRef | None = None


class Inference(Protocol):
    """Clean texts into answers."""

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order; what a text gets must not depend on the others."""


class ModelInference:
    """Inference by one model, some `tokens_at_once`; `pooling` is the one it was trained with.

    A thread of its own makes the windows of up to `groups_ahead` groups while the encoder is at
    another: for an encoder that leaves the CPU idle.
    """

    def __init__(
        self,
        text: TextFlow,
        encoder: Encoder,
        heads: tuple[HeadSlice, ...],
        *,
        pooling: WindowPooling = "mean",
        tokens_at_once: int = _TOKENS_AT_ONCE,
        groups_ahead: int = 0,
    ) -> None:
        self._text = text
        self._encoder = encoder
        self._heads = heads
        self._pooling: WindowPooling = pooling
        self._tokens_at_once = tokens_at_once
        self._groups_ahead = groups_ahead

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order.

        Raises:
            ShardError: the encoder lost a window.
        """
        groups = self._groups(items)
        if self._groups_ahead:
            groups = ahead(groups, depth=self._groups_ahead)
        return [inferred for group in groups for inferred in self._answers(group)]

    def _groups(self, items: Sequence[Prepared]) -> Iterator[list[Windows]]:
        """The windows of items, as many items at once as have `tokens_at_once` tokens."""
        group: list[Windows] = []
        tokens = 0
        for item in items:
            group.append(self._text.windows(item))
            tokens += sum(window.n_tokens for window in group[-1].windows)
            if tokens >= self._tokens_at_once:
                yield group
                group, tokens = [], 0
        if group:
            yield group

    def _answers(self, group: Sequence[Windows]) -> Iterator[Inferred]:
        windows = [window for item in group for window in item.windows]
        logits = self._encoder.logits(windows).astype(np.float64)
        if len(logits) != len(windows):
            raise ShardError(
                f"{len(windows)} windows made, but the model answered {len(logits)} of them"
            )
        n_tokens = np.array([window.n_tokens for window in windows])
        n_windows = np.array([len(item.windows) for item in group])
        starts = np.cumsum(n_windows) - n_windows
        is_finite = np.isfinite(logits).all(axis=1)
        logits[~is_finite] = 0.0
        by_head = [
            answers(logits, n_tokens, n_windows, head, pooling=self._pooling)
            for head in self._heads
        ]
        names = [head.name for head in self._heads]
        for item, tokens, sound, *heads in zip(
            group,
            np.add.reduceat(n_tokens, starts).tolist(),
            np.logical_and.reduceat(is_finite, starts).tolist(),
            *by_head,
            strict=True,
        ):
            found = dict(zip(names, heads, strict=True)) if sound else {}
            yield Inferred(
                answers=found,
                decision=decide(found, self._heads) if sound else "review",
                spans=tuple((window.start_char, window.end_char) for window in item.windows),
                truncated=item.truncated,
                windows_made=len(item.windows),
                windows_aggregated=len(item.windows),
                tokens=tokens,
            )
