"""The answers of teachers as targets: how far the student's are from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pipeline.model.distil.epoch_mean import EpochMean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.batches import Item
    from pipeline.model.extra_loss import WholeBatch
    from pipeline.model.network import Classifier
    from schemas.distil import DistilConfig


class SoftTargets(nn.Module):
    """`alpha` T^2 KL(teacher || student) as an `ExtraLoss`.

    `taught` `(K, N, L)` has the logits of K teachers for all training records, T not applied. A
    window that is an item of its own is held against what the teacher says of its record, as it is
    against the record's label.
    """

    _taught: Tensor

    def __init__(self, taught: Tensor, heads: tuple[HeadSlice, ...], config: DistilConfig) -> None:
        super().__init__()
        self._heads, self._alpha, self._temperature = heads, config.alpha, config.temperature
        self._mean = EpochMean()
        # Not part of the state: these are read from their cache again.
        self.register_buffer("_taught", as_one(taught, config.ensemble), persistent=False)

    def attach(self, model: Classifier) -> None:
        """Moves the targets to the model's device."""
        self.to(next(model.parameters()).device)

    def detach(self) -> None:
        """Does nothing: the model was not touched."""

    def forward(self, items: Sequence[Item], logits: Tensor, *, batch: WholeBatch) -> Tensor:
        """See `ExtraLoss`; whether labels are known makes no difference."""
        taught = self._taught[:, [item.row for item in items]]
        loss = self._alpha * soft_loss(
            logits, taught, self._heads, temperature=self._temperature, n_items=batch.n_items
        )
        self._mean.add(loss, step=batch.step)
        return loss

    def epoch_numbers(self) -> dict[str, float]:
        """The epoch's mean over steps, as `distil_loss`."""
        return {"distil_loss": self._mean.take()}


def as_one(taught: Tensor, ensemble: str) -> Tensor:
    """Logits `(1, N, L)`, the teachers' mean, for `logits`; else `(K, N, L)` as they are."""
    return taught.mean(dim=0, keepdim=True) if ensemble == "logits" else taught


def mean_answers(taught: Tensor, heads: tuple[HeadSlice, ...], ensemble: str) -> Tensor:
    """Logits `(N, L)` that give the probabilities of teachers `(K, N, L)` together."""
    parts = []
    for head in heads:
        each = answer_log_probabilities(as_one(taught, ensemble)[..., head.columns], head)
        mean = each.logsumexp(dim=0) - math.log(len(each))  # (N, A, C)
        # Of yes and no the difference is what a sigmoid turns into the probability of yes.
        logits = mean[..., 0] - mean[..., 1] if head.config.kind == "multi" else mean.flatten(1)
        parts.append(logits)
    return torch.cat(parts, dim=1)


def soft_loss(
    logits: Tensor,
    taught: Tensor,
    heads: tuple[HeadSlice, ...],
    *,
    temperature: float,
    n_items: int,
) -> Tensor:
    """T^2 KL(teacher || student) of logits `(B, L)` from `(K, B, L)`, weighted over heads.

    T^2 keeps gradients as large as those of labels, whatever T is (Hinton et al. 2015). By head it
    is the mean over `n_items`, the whole batch's, of which the rows may be a part, and over the
    head's answers. Several teachers are one by the mean of their probabilities: the gradient is
    the mean of what each of them alone would give, so that none counts for more for being surer.
    """
    total = 0.0 * logits.sum()
    for head in heads:
        mine = answer_log_probabilities(logits[:, head.columns] / temperature, head)
        each = answer_log_probabilities(taught[..., head.columns] / temperature, head)
        theirs = each.logsumexp(dim=0) - math.log(len(each))
        apart = (theirs.exp() * (theirs - mine)).sum()
        total = total + head.config.loss_weight * apart / (n_items * mine.shape[1])
    return temperature**2 * total


def answer_log_probabilities(logits: Tensor, head: HeadSlice) -> Tensor:
    """Log-probabilities `(..., A, C)` of a head's answers from its logits `(..., L)`.

    `single` has one answer of L choices, `aspect` one for each aspect, and `multi` L of them, each
    yes or no.
    """
    if head.config.kind == "multi":
        log_sigmoid = nn.functional.logsigmoid
        return torch.stack([log_sigmoid(logits), log_sigmoid(-logits)], dim=-1)
    n_answers = len(head.config.aspects) if head.config.kind == "aspect" else 1
    return logits.reshape(*logits.shape[:-1], n_answers, -1).log_softmax(dim=-1)
