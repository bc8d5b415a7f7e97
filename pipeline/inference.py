"""From clean texts to answers: windows, logits, aggregation, decision.

What stands behind `Inference` may be a model, a memory of earlier answers, or two models in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.heads import Answer, Decision, HeadSlice, answer, decide
from schemas.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.flow import Prepared, TextFlow
    from pipeline.window import Window, Windows

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

    `windows_made`, `windows_aggregated` and `tokens` are the work that was done for it now.
    """

    answers: Mapping[str, Answer]
    decision: Decision
    spans: tuple[tuple[int, int], ...]
    truncated: bool
    windows_made: int = 0
    windows_aggregated: int = 0
    tokens: int = 0


class Inference(Protocol):
    """Clean texts into answers."""

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order; what a text gets must not depend on the others."""


class ModelInference:
    """Inference by one model."""

    def __init__(self, text: TextFlow, encoder: Encoder, heads: tuple[HeadSlice, ...]) -> None:
        self._text = text
        self._encoder = encoder
        self._heads = heads

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order.

        Raises:
            ShardError: the encoder lost a window.
        """
        return [inferred for group in self._groups(items) for inferred in self._answers(group)]

    def _groups(self, items: Sequence[Prepared]) -> Iterator[list[Windows]]:
        """The windows of items, as many items at once as have some tens of thousands of tokens."""
        group: list[Windows] = []
        tokens = 0
        for item in items:
            group.append(self._text.windows(item))
            tokens += sum(window.n_tokens for window in group[-1].windows)
            if tokens >= _TOKENS_AT_ONCE:
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
        start = 0
        for item in group:
            stop = start + len(item.windows)
            yield self._answer(item, logits[start:stop])
            start = stop

    def _answer(self, item: Windows, logits: npt.NDArray[np.float64]) -> Inferred:
        n_tokens = np.array([window.n_tokens for window in item.windows])
        answers: dict[str, Answer] = {}
        decision: Decision = "review"
        if np.isfinite(logits).all():
            answers = {head.name: answer(logits, n_tokens, head) for head in self._heads}
            decision = decide(answers, self._heads)
        return Inferred(
            answers=answers,
            decision=decision,
            spans=tuple((window.start_char, window.end_char) for window in item.windows),
            truncated=item.truncated,
            windows_made=len(item.windows),
            windows_aggregated=len(logits),
            tokens=int(n_tokens.sum()),
        )
