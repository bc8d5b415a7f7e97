"""What a model says of labelled records, through the very engine and steps that score at night."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.heads import HeadSlice, pool_logits, record_scores, scaled_logits
from pipeline.model.labelled import known_rows, label_matrix, outside_rows
from pipeline.scope import Nearness, choose_rule, measure_rule, rule_scores
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.inference import Encoder
    from pipeline.model.labelled import Example
    from schemas.bundle import HeadMetrics
    from schemas.scope import ScopeRule
    from schemas.task import WindowPooling


@dataclass(frozen=True)
class Outputs:
    """Logits `(W, L)` of each record's windows and their token counts `(W,)`.

    With the `pooling` `attention` the logits are `(W, L + 1)`, the windows' weights among them.
    """

    logits: tuple[npt.NDArray[np.float64], ...]
    n_tokens: tuple[npt.NDArray[np.int64], ...]
    pooling: WindowPooling = "mean"

    def scores(self, head: HeadSlice) -> npt.NDArray[np.float64]:
        """Pooled probabilities `(N, L)` of one head, as the nightly job would give them."""
        return np.stack(
            [
                record_scores(logits, n_tokens, head, pooling=self.pooling)
                for logits, n_tokens in zip(self.logits, self.n_tokens, strict=True)
            ]
        )

    def first(self, n: int) -> Outputs:
        """The outputs of the first `n` records."""
        return replace(self, logits=self.logits[:n], n_tokens=self.n_tokens[:n])

    def rows(self, places: npt.NDArray[np.intp]) -> Outputs:
        """The outputs of some records, in that order."""
        logits = tuple(self.logits[place] for place in places)
        return replace(self, logits=logits, n_tokens=tuple(self.n_tokens[p] for p in places))

    def pooled_logits(self) -> npt.NDArray[np.float64]:
        """The records' logits `(N, L)`, on which temperatures are fitted."""
        return np.stack(
            [
                pool_logits(logits, n_tokens, self.pooling)
                for logits, n_tokens in zip(self.logits, self.n_tokens, strict=True)
            ]
        )


def run_encoder(
    encoder: Encoder, examples: Sequence[Example], *, pooling: WindowPooling = "mean"
) -> Outputs:
    """Outputs of `encoder` for each example, pooled as its model was trained to.

    It is asked for all windows at once, so that it may share them out as it likes.
    """
    windows = [window for example in examples for window in example.windows]
    logits = encoder.logits(windows).astype(np.float64)
    ends = np.cumsum([len(example.windows) for example in examples])[:-1]
    n_tokens = tuple(
        np.array([window.n_tokens for window in example.windows]) for example in examples
    )
    return Outputs(tuple(np.split(logits, ends)), n_tokens, pooling)


def fit_scope(
    outputs: Outputs, examples: Sequence[Example], head: HeadSlice, *, column: int | None = None
) -> ScopeRule | None:
    """The rule for texts that no label of a calibrated head fits, from validation records.

    None where the head is not configured with `outside`. Without records that are known to be
    outside the rule is chosen on the others alone. The model gives the head's nearness to training
    texts in `column` of its output, if at all.

    Raises:
        DataContractError: no record has one of the head's labels.
    """
    if head.config.outside is None:
        return None
    all_outputs, is_outside = _told(outputs, examples, head)
    if is_outside.all():
        raise DataContractError(
            f"head {head.name!r}: no validation record has one of its labels, from which the rule "
            f"for texts outside is learnt; add labelled rows or leave out heads.{head.name}.outside"
        )
    return choose_rule(
        scaled_logits(all_outputs, head),
        is_outside,
        keep=head.config.outside.keep,
        nearness=None if column is None else Nearness(column, all_outputs[:, column]),
    )


def with_scope(
    metrics: HeadMetrics, outputs: Outputs, examples: Sequence[Example], head: HeadSlice
) -> HeadMetrics:
    """A head's metrics, with what its rule for texts outside does to the same records."""
    if head.scope_rule is None:
        return metrics
    all_outputs, is_outside = _told(outputs, examples, head)
    scores = rule_scores(head.scope_rule, scaled_logits(all_outputs, head), all_outputs)
    shares = measure_rule(head.scope_rule, scores, is_outside)
    figures = {"inside_kept": shares.kept, "outside_caught": shares.caught}
    return metrics.model_copy(update={**figures, "outside_rows": int(is_outside.sum())})


def _told(
    outputs: Outputs, examples: Sequence[Example], head: HeadSlice
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """All outputs `(N, M)` and marks `(N,)` of the records known to be inside or outside."""
    is_outside = outside_rows(examples, head.name)
    told = is_outside | known_rows(label_matrix(examples, head.name, head.config))
    return outputs.pooled_logits()[told], is_outside[told]
