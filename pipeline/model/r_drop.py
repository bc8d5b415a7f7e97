"""R-Drop: two passes over the same texts, which only dropout makes differ, should agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.heads import HeadSlice


def r_drop_loss(
    one: Tensor, other: Tensor, heads: tuple[HeadSlice, ...], *, n_items: int
) -> Tensor:
    """Weighted sum over heads of how far two passes' logits `(B, L)` differ (Liang et al. 2021).

    By head it is a quarter of KL(p|q) + KL(q|p), averaged over `n_items` and the head's answers:
    half of the paper's half, as the loss beside it is the mean of both passes, not the sum.
    `n_items` is the size of the whole batch, of which the rows may be a part.
    """
    total = 0.0 * one.sum()
    for head in heads:
        summed, n_answers = _both_ways(one[:, head.columns], other[:, head.columns], head)
        total = total + head.config.loss_weight * summed / (n_items * n_answers)
    return total / 4


def _both_ways(one: Tensor, other: Tensor, head: HeadSlice) -> tuple[Tensor, int]:
    """Summed KL both ways, and how many answers the head gives for a record."""
    if head.config.kind == "multi":
        # Of two yes/no distributions with logits a and b it is (sigmoid(a) - sigmoid(b)) (a - b).
        differing = (one.sigmoid() - other.sigmoid()) * (one - other)
        return differing.sum(), one.shape[1]
    n_answers = len(head.config.aspects) if head.config.kind == "aspect" else 1
    p, q = (
        torch.log_softmax(logits.reshape(len(logits), n_answers, -1), dim=-1)
        for logits in (one, other)
    )
    return ((p.exp() - q.exp()) * (p - q)).sum(), n_answers
