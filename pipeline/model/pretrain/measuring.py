"""Held-out numbers of a model, the same for one worker and several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pipeline.model.batches import has_segments
from pipeline.model.pretrain.objective import collate
from pipeline.model.pretrain.perplexity import total
from pipeline.model.ranks import rank_and_world, sum_over_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.pretrain.masking import Example
    from pipeline.model.pretrain.objective import Objective
    from pipeline.model.pretrain.perplexity import Question


@torch.no_grad()
def masked_metrics(
    objective: Objective, asked: Sequence[Question], *, pad_id: int, batch_size: int
) -> dict[str, float]:
    """Perplexities of the hidden words; see `Perplexity.metrics`. Workers share the questions."""
    rank, world = rank_and_world()
    by_length = sorted(asked, key=lambda question: len(question.example))
    mine = [question.example for question in by_length][rank::world]
    objective.eval()
    nll = torch.zeros((), dtype=torch.float64)
    for batch in _batches(mine, batch_size):
        nll += _losses(objective, batch, pad_id)[0].double()
    return total(sum_over_ranks(nll), asked).metrics


@torch.no_grad()
def twin_metrics(
    objective: Objective, examples: Sequence[Example], *, pad_id: int, batch_size: int, seed: int
) -> dict[str, float]:
    """The contrastive loss, dropout and batches the same each time."""
    objective.train()  # the two views differ by their dropout
    losses = 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for batch in _batches(examples, batch_size):
            losses += float(_losses(objective, batch, pad_id)[0])
    return {"loss": losses / max(1, len(examples))}


def _losses(objective: Objective, batch: Sequence[Example], pad_id: int) -> torch.Tensor:
    tensors = collate(batch, pad_id=pad_id, segments=has_segments(objective.model))
    losses: torch.Tensor = objective(**tensors)
    return losses


def _batches(examples: Sequence[Example], size: int) -> list[Sequence[Example]]:
    return [examples[start : start + size] for start in range(0, len(examples), size)]
