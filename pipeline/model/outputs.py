"""What a model says of labelled records, through the very engine and steps that score at night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.heads import HeadSlice, aggregate, probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.inference import Encoder
    from pipeline.model.labelled import Example


@dataclass(frozen=True)
class Outputs:
    """Logits `(W, L)` of each record's windows and their token counts `(W,)`."""

    logits: tuple[npt.NDArray[np.float64], ...]
    n_tokens: tuple[npt.NDArray[np.int64], ...]

    def scores(self, head: HeadSlice) -> npt.NDArray[np.float64]:
        """Aggregated probabilities `(N, L)` of one head, as the nightly job would give them."""
        return np.stack(
            [
                aggregate(probabilities(logits, head), n_tokens)
                for logits, n_tokens in zip(self.logits, self.n_tokens, strict=True)
            ]
        )

    def first(self, n: int) -> Outputs:
        """The outputs of the first `n` records."""
        return Outputs(self.logits[:n], self.n_tokens[:n])

    def mean_logits(self) -> npt.NDArray[np.float64]:
        """Token-weighted mean logits `(N, L)`, on which temperatures are fitted."""
        return np.stack(
            [
                (n_tokens / n_tokens.sum()) @ logits
                for logits, n_tokens in zip(self.logits, self.n_tokens, strict=True)
            ]
        )


def run_encoder(encoder: Encoder, examples: Sequence[Example]) -> Outputs:
    """Outputs of `encoder` for each example."""
    logits = tuple(encoder.logits(example.windows).astype(np.float64) for example in examples)
    n_tokens = tuple(
        np.array([window.n_tokens for window in example.windows]) for example in examples
    )
    return Outputs(logits, n_tokens)


def predicted_labels(scores: npt.NDArray[np.float64], head: HeadSlice) -> npt.NDArray[Any]:
    """Label index `(N,)` or, for `multi`, yes/no flags `(N, L)`."""
    return scores.argmax(axis=1) if head.config.kind == "single" else scores >= 0.5
