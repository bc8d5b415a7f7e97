"""How much each head and neuron matters to the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipeline.model.batches import pool_items, tensor_inputs, training_items
from pipeline.model.labelled import label_matrices
from pipeline.model.losses import plain_loss
from pipeline.model.prune.anatomy import Block, layer_parts
from pipeline.model.prune.masks import masked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.batches import Item
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.prune import PruneConfig
    from schemas.task import TrainConfig

_ITEMS_AT_ONCE = 16


@dataclass(frozen=True)
class Importance:
    """By layer a number for each head and each neuron, each layer's of length 1 as a vector."""

    heads: list[Tensor]
    neurons: list[Tensor]


def measure_importance(
    model: Classifier,
    examples: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    *,
    train: TrainConfig,
    prune: PruneConfig,
    pad_id: int,
) -> Importance:
    """What each head and neuron of `model` matters on `examples`; leaves it in evaluation.

    A part's importance is E |dL/dm|, the expected size of the loss's slope along a factor m of what
    it puts out, at 1 (Michel et al. 2019, equation 2). For a neuron this is |activation times
    gradient|, summed over the tokens of a text: the Taylor score of Molchanov et al. 2017. Layers
    are made comparable by the length of their vector, as both papers do.
    """
    parts = layer_parts(model.encoder)
    neurons = [layer.neurons for layer in parts]
    blocks = [*(layer.heads for layer in parts), *neurons]
    slopes = _Slopes(model, blocks, examples, heads, train, pad_id).total()
    by_neuron = slopes[len(parts) :]
    if prune.neuron_score == "magnitude":
        by_neuron = [weight_norms(block) for block in neurons]
    return Importance(
        heads=[_unit(slope) for slope in slopes[: len(parts)]],
        neurons=[_unit(scores) for scores in by_neuron],
    )


def weight_norms(block: Block) -> Tensor:
    """By group the length of its weights in, times that of its weights out `(G,)`."""
    width = block.reader.in_features
    rows = torch.zeros(width)
    for maker in block.makers:
        rows += maker.weight.detach().cpu().pow(2).sum(dim=1).view(block.parts, width).sum(dim=0)
    columns = block.reader.weight.detach().cpu().pow(2).sum(dim=0)
    into, out = (squares.view(-1, block.group).sum(dim=1).sqrt() for squares in (rows, columns))
    return torch.mul(into, out)


@dataclass(frozen=True)
class _Slopes:
    """The loss's slopes along what groups put out, over records."""

    model: Classifier
    blocks: Sequence[Block]
    examples: Sequence[Example]
    heads: tuple[HeadSlice, ...]
    train: TrainConfig
    pad_id: int

    def total(self) -> list[Tensor]:
        """By block the sum over all windows of the size of the slope along each group `(G,)`."""
        self.model.eval()
        targets = {
            name: torch.from_numpy(rows)
            for name, rows in label_matrices(self.examples, self.heads).items()
        }
        items = training_items(self.examples, self.train, epoch=0)
        items.sort(key=lambda item: item.n_tokens)  # so that little is padded
        sums = [torch.zeros(block.n_groups) for block in self.blocks]
        for start in range(0, len(items), _ITEMS_AT_ONCE):
            some = items[start : start + _ITEMS_AT_ONCE]
            known = {name: target[[item.row for item in some]] for name, target in targets.items()}
            sums = [a + b for a, b in zip(sums, self._of(some, known), strict=True)]
        return sums

    def _of(self, items: Sequence[Item], targets: Mapping[str, Tensor]) -> list[Tensor]:
        windows = [window for item in items for window in item.windows]
        inputs = tensor_inputs(self.model, windows, pad_id=self.pad_id)
        masks = [
            torch.ones(len(windows), block.n_groups, requires_grad=True) for block in self.blocks
        ]
        with masked(zip(self.blocks, masks, strict=True)), torch.enable_grad():
            logits = pool_items(self.model(**inputs), items, how=self.train.window_pooling)
            # A sum, not a mean: so each record's slope is its own, whatever batch it is in.
            loss = plain_loss(logits, targets, self.heads, counts=dict.fromkeys(targets, 1))
            found = torch.autograd.grad(loss, masks)
        return [slope.abs().sum(dim=0) for slope in found]


def _unit(scores: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(scores).clamp(min=1e-12)
    return torch.div(scores, length)
