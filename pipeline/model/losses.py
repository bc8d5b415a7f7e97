"""What training minimises: one loss for each head, weighted, over the labels that are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.heads import HeadSlice
    from schemas.task import TrainConfig

# A label that one record in a thousand has would else count a thousand times, and its noise too.
MAX_CLASS_WEIGHT = 10.0
_LEAST_DOUBT = 1e-8  # keeps the gradient of doubt ** gamma finite where gamma is under 1


@dataclass(frozen=True)
class _Shape:
    """How one head's loss differs from plain cross-entropy; the default is not at all."""

    smoothing: float = 0.0
    gamma: float = 0.0
    weights: Mapping[str, Tensor] = field(default_factory=dict)


_PLAIN = _Shape()


class HeadLosses:
    """The training loss of all heads as `config` wants it.

    `train_targets` has the targets of all training records by head, as `label_matrix` gives them:
    `class_weights: balanced` is taken from these once, so that every batch and worker has the same.
    `weight` is that of all labels beside what else is learnt from.
    """

    def __init__(
        self,
        heads: tuple[HeadSlice, ...],
        config: TrainConfig,
        train_targets: Mapping[str, npt.NDArray[Any]],
        *,
        weight: float = 1.0,
    ) -> None:
        self._heads = heads
        self._weight = weight
        weights = {}
        if config.class_weights == "balanced":
            weights = {
                head.name: torch.from_numpy(balanced_weights(train_targets[head.name], head))
                for head in heads
            }
        self._shape = _Shape(config.label_smoothing, config.focal_gamma, weights)

    def __call__(
        self,
        logits: Tensor,
        targets: Mapping[str, Tensor],
        *,
        counts: Mapping[str, int] | None = None,
    ) -> Tensor:
        """Weighted sum of the heads' losses; see `plain_loss` for targets and counts."""
        return self._weight * _total(logits, targets, self._heads, self._shape, counts)


def plain_loss(
    logits: Tensor,
    targets: Mapping[str, Tensor],
    heads: tuple[HeadSlice, ...],
    *,
    counts: Mapping[str, int] | None = None,
) -> Tensor:
    """Weighted sum of the heads' losses; a record without a head's label does not count there.

    Without smoothing, weights or focus, as validation is measured. `targets` has for a `single`
    head indices `(B,)`, -100 where missing; for a `multi` head zeros and ones `(B, L)`, for an
    `aspect` head choices `(B, A)`, both NaN where missing. Each head's loss is the mean over
    `counts` known labels: those of this batch, unless it is one worker's share of a larger one.
    """
    return _total(logits, targets, heads, _PLAIN, counts)


def known_counts(targets: Mapping[str, Tensor]) -> dict[str, int]:
    """How many labels of each head are known: records, or single answers of `multi` and `aspect`.

    A `multi` head has a yes or no for each label, an `aspect` head a choice for each aspect.
    """
    return {
        name: int((torch.isfinite(target) if target.is_floating_point() else target >= 0).sum())
        for name, target in targets.items()
    }


def balanced_weights(target: npt.NDArray[Any], head: HeadSlice) -> npt.NDArray[np.float32]:
    """Weights by label that make rare ones count like frequent ones, from training targets.

    `single` `(L,)`: n / (k n_c) for n records, k labels that any of them has, and n_c records of
    label c (King & Zeng 2001, and sklearn's `balanced`); their mean over records is 1. `aspect`
    `(A, P + 1)`: the same for each aspect. `multi` `(L,)`: how many records lack a label for each
    that has it, as weight of its yes. The last two are kept within 1/10 and 10. A label without
    records weighs 1.
    """
    if head.config.kind == "single":
        return _class_weights(target[target >= 0], len(head.config.labels))
    known = target[np.isfinite(target).all(axis=1)]
    if head.config.kind == "aspect":
        n_choices = len(head.config.labels) + 1
        weights = np.stack([_class_weights(aspect, n_choices) for aspect in known.T])
    else:
        positive = known.sum(axis=0)
        negative = len(known) - positive
        weights = np.where(positive > 0, negative / np.maximum(positive, 1), 1.0)
    return np.clip(weights, 1 / MAX_CLASS_WEIGHT, MAX_CLASS_WEIGHT).astype(np.float32)


def _class_weights(indices: npt.NDArray[Any], n_classes: int) -> npt.NDArray[np.float32]:
    weights = np.ones(n_classes, dtype=np.float32)
    present = np.unique(indices)
    if len(present):
        weights[present.astype(np.int64)] = compute_class_weight(
            "balanced", classes=present, y=indices
        )
    return weights


def _total(
    logits: Tensor,
    targets: Mapping[str, Tensor],
    heads: tuple[HeadSlice, ...],
    shape: _Shape,
    counts: Mapping[str, int] | None,
) -> Tensor:
    counts = known_counts(targets) if counts is None else counts
    total = 0.0 * logits.sum()  # keeps its gradient where no label is known
    for head in heads:
        if not counts[head.name]:
            continue
        summed = _summed(head, logits[:, head.columns], targets[head.name], shape)
        total = total + head.config.loss_weight * summed / counts[head.name]
    return total


def _summed(head: HeadSlice, scores: Tensor, target: Tensor, shape: _Shape) -> Tensor:
    """One head's loss, summed over known labels, from its logits `(B, L)`."""
    weights = shape.weights.get(head.name)
    if weights is not None:
        weights = weights.to(scores)
    if head.config.kind == "multi":
        known = torch.isfinite(target)
        if weights is not None:
            weights = weights.expand_as(scores)[known]
        return _yes_or_no(scores[known], target[known], weights, shape.gamma)
    if head.config.kind == "single":
        return _one_of_n(scores, target, weights, shape)
    grid = scores.reshape(len(scores), len(head.config.aspects), -1)  # (B, A, P + 1)
    chosen = torch.where(torch.isfinite(target), target, -100.0).long()  # (B, A)
    if weights is None:
        return _one_of_n(grid.flatten(0, 1), chosen.flatten(), None, shape)
    return torch.stack(
        [_one_of_n(grid[:, a], chosen[:, a], row, shape) for a, row in enumerate(weights)]
    ).sum()


def _one_of_n(scores: Tensor, target: Tensor, weights: Tensor | None, shape: _Shape) -> Tensor:
    """Cross-entropy over `(B, L)` with indices `(B,)`, of which -100 do not count.

    With gamma each class's term is scaled by its own (1 - p) ** gamma (Lin et al. 2017), which
    without smoothing is the focal loss of the true class.
    """
    if not shape.gamma:
        return nn.functional.cross_entropy(
            scores, target, weight=weights, label_smoothing=shape.smoothing, reduction="sum"
        )
    known = target >= 0
    log_p = scores[known].log_softmax(dim=1)
    n = log_p.shape[1]
    wanted = nn.functional.one_hot(target[known], n).to(log_p) * (1 - shape.smoothing)
    wanted = wanted + shape.smoothing / n
    if weights is not None:
        wanted = wanted * weights
    return -(wanted * _doubt(log_p) ** shape.gamma * log_p).sum()


def _yes_or_no(scores: Tensor, target: Tensor, weights: Tensor | None, gamma: float) -> Tensor:
    """Binary cross-entropy over known answers `(K,)`; `weights` `(K,)` scale those that are yes."""
    if not gamma:
        return nn.functional.binary_cross_entropy_with_logits(
            scores, target, pos_weight=weights, reduction="sum"
        )
    losses = nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
    focused = _doubt(-losses) ** gamma * losses
    if weights is not None:
        focused = focused * torch.where(target > 0.5, weights, 1.0)
    return focused.sum()


def _doubt(log_p: Tensor) -> Tensor:
    """1 - p, exact where p is near 1."""
    return -torch.expm1(log_p.clamp(max=-_LEAST_DOUBT))
