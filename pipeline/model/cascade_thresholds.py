"""From which confidence on a small model may answer for a large one, at an agreed loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.heads import flags_of
from pipeline.model.labelled import known_rows, label_matrix
from pipeline.model.metrics import macro_f1
from schemas.cascade import CascadeMeasure
from schemas.errors import ArtifactError, DataContractError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.inference import Inferred
    from pipeline.model.labelled import Example

_SHARES = np.arange(1, 101) / 100  # of the texts, the surest first


@dataclass(frozen=True)
class HeadOutcome:
    """One head on N labelled texts: truth and both models' predictions, `(N,)` or `(N, L)`.

    `known` `(N,)` marks texts whose label is known. `confidence` `(N,)` is the small model's, at
    most 0 where its answer would go to people. `only_present` is for `macro_f1`.
    """

    truth: npt.NDArray[np.int64]
    known: npt.NDArray[np.bool_]
    small: npt.NDArray[np.int64]
    large: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    only_present: bool = False

    def macro_f1(self, is_small: npt.NDArray[np.bool_]) -> float:
        """Macro-F1 where the small model answers the texts marked `(N,)`, else the large one."""
        marks = is_small if self.truth.ndim == 1 else is_small[:, None]
        together = np.where(marks, self.small, self.large)
        return macro_f1(
            self.truth[self.known], together[self.known], only_present=self.only_present
        )


def head_outcomes(
    examples: Sequence[Example],
    small: Sequence[Inferred],
    large: Sequence[Inferred],
    heads: tuple[HeadSlice, ...],
) -> dict[str, HeadOutcome]:
    """Both models' answers to labelled texts by head, as the nightly job would get them."""
    outcomes = {}
    for head in heads:
        target = label_matrix(examples, head.name, head.config)
        known = known_rows(target)
        truth = np.where(known if target.ndim == 1 else known[:, None], target, 0).astype(np.int64)
        is_aspect = head.config.kind == "aspect"
        confidence = np.array(
            [each.answers[head.name].confidence if each.answers else 0.0 for each in small]
        )
        is_outside = [bool(each.answers) and each.answers[head.name].outside for each in small]
        confidence[np.array(is_outside, dtype=np.bool_)] = 0.0
        confidence[confidence < head.config.review_below] = 0.0
        outcomes[head.name] = HeadOutcome(
            truth=flags_of(truth, head).astype(np.int64) if is_aspect else truth,
            known=known,
            small=_predicted(small, head),
            large=_predicted(large, head),
            confidence=confidence,
            only_present=is_aspect,
        )
    return outcomes


def _predicted(inferred: Sequence[Inferred], head: HeadSlice) -> npt.NDArray[Any]:
    """Label indices `(N,)` or flags `(N, L)`; the first label or none where a model gave NaN."""
    labels = head.config.answer_labels
    chosen = [each.answers[head.name].labels if each.answers else () for each in inferred]
    if head.config.kind == "single":
        return np.array([labels.index(one[0]) if one else 0 for one in chosen], np.int64)
    return np.array([[label in some for label in labels] for some in chosen], np.int64)


def choose_thresholds(
    outcomes: Mapping[str, HeadOutcome], *, max_metric_loss: float
) -> dict[str, float]:
    """Thresholds by head, as low as the loss of every head allows.

    The heads are loosened together, each to the same share of its surest texts, up to the first
    loss that is too great: what lies behind it would be allowed only by chance.

    Raises:
        ArtifactError: the small model may answer nothing.
        DataContractError: a head has no labelled texts.
    """
    for name, outcome in outcomes.items():
        if not outcome.known.any():
            raise DataContractError(f"head {name!r} has no labelled validation texts; add some")
    nobody = np.zeros(len(next(iter(outcomes.values())).truth), np.bool_)
    least = {name: each.macro_f1(nobody) - max_metric_loss for name, each in outcomes.items()}
    allowed: dict[str, float] | None = None
    for share in _SHARES:
        thresholds = {
            name: max(float(np.quantile(each.confidence, 1 - share, method="higher")), 1e-9)
            for name, each in outcomes.items()
        }
        sure = _sure(outcomes, thresholds)
        if any(each.macro_f1(sure) < least[name] for name, each in outcomes.items()):
            break
        allowed = thresholds
    if allowed is None:
        raise ArtifactError(
            f"the small model loses more than {max_metric_loss} macro-F1 even on the texts it is "
            f"surest of; train a better one, or raise score.cascade.max_metric_loss"
        )
    return allowed


def measure(outcomes: Mapping[str, HeadOutcome], thresholds: Mapping[str, float]) -> CascadeMeasure:
    """Quality of each model alone and of both, and the share of texts the small one answers."""
    sure = _sure(outcomes, thresholds)
    nobody, everybody = np.zeros(len(sure), np.bool_), np.ones(len(sure), np.bool_)
    return CascadeMeasure(
        rows=len(sure),
        share_of_small=round(float(sure.mean()), 4),
        small={name: each.macro_f1(everybody) for name, each in outcomes.items()},
        large={name: each.macro_f1(nobody) for name, each in outcomes.items()},
        together={name: each.macro_f1(sure) for name, each in outcomes.items()},
    )


def _sure(
    outcomes: Mapping[str, HeadOutcome], thresholds: Mapping[str, float]
) -> npt.NDArray[np.bool_]:
    """Marks `(N,)` the texts that the small model answers."""
    marks = [each.confidence >= thresholds[name] for name, each in outcomes.items()]
    return np.asarray(np.logical_and.reduce(marks))
