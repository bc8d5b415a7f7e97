"""Which heads, neurons and layers stay."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pipeline.model.labelled import label_matrices
from pipeline.model.layers import encoder_layers, layers_path
from pipeline.model.losses import plain_loss
from pipeline.model.prune.anatomy import family_of
from pipeline.model.prune.cut import no_heads_message
from pipeline.model.record_logits import record_logits
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from transformers import PreTrainedModel

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.model.prune.importance import Importance
    from schemas.prune import PruneConfig
    from schemas.task import TrainConfig

log = logging.getLogger(__name__)
Kept = list[tuple[list[int], list[int]]]  # by layer the heads and the neurons that stay
# Kernels take matrices eight or sixteen rows at a time: a ragged end costs as much as a full one.
NEURONS_TOGETHER = 8


def choose_parts(importance: Importance, *, heads: float, neurons: float) -> Kept:
    """What stays of each layer when these shares of heads and neurons go."""
    return list(
        zip(
            most_important(importance.heads, share=heads),
            most_important(importance.neurons, share=neurons, together=NEURONS_TOGETHER),
            strict=True,
        )
    )


def most_important(scores: Sequence[Tensor], *, share: float, together: int = 1) -> list[list[int]]:
    """By layer the places that stay, in order, when a `share` of all goes, the lowest scores first.

    How many stay in a layer is rounded to a multiple of `together`, and at least one such lot does,
    or all where a layer has no more. Of equal scores the earlier place stays.
    """
    flat = torch.cat(list(scores))
    n_gone = int(share * len(flat) + 1e-9)  # 0.3 of 10 is 3, not 2
    order = torch.argsort(flat, stable=True, descending=True)
    stays = torch.ones(len(flat), dtype=torch.bool)
    stays[order[len(flat) - n_gone :]] = False
    kept = []
    for layer, flags in zip(scores, torch.split(stays, [len(s) for s in scores]), strict=True):
        size = len(layer)
        if (count := int(flags.sum())) < size:
            count = min(size, max(together, round(count / together) * together))
        best = torch.argsort(layer, stable=True, descending=True)[:count]
        kept.append(sorted(best.tolist()))
    return kept


def choose_layers(
    model: Classifier,
    examples: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    *,
    train: TrainConfig,
    prune: PruneConfig,
    pad_id: int,
) -> list[int]:
    """The places of layers that go.

    Raises:
        ConfigError: the encoder has too few of them, or its attention cannot do with fewer heads.
    """
    family, depth = family_of(model.encoder), len(encoder_layers(model.encoder))
    if prune.heads and not family.cuts_heads:
        raise ConfigError(no_heads_message(model.encoder))
    if not isinstance(prune.layers, int):
        return sorted(prune.layers)
    if prune.layers >= depth:
        raise ConfigError(
            f"compress.prune.layers: got {prune.layers} of an encoder with {depth}; leave one"
        )
    if prune.layer_choice == "top":
        return list(range(depth - prune.layers, depth))
    gone: list[int] = []
    for _ in range(prune.layers):
        left = [n for n in range(family.needs_first, depth) if n not in gone]
        losses = {n: _loss(model, [*gone, n], examples, heads, train, pad_id) for n in left}
        gone.append(min(losses, key=lambda n: losses[n]))
        log.info("without layer %d the loss is %.4f, the least", gone[-1], losses[gone[-1]])
    return sorted(gone)


@contextmanager
def without_layers(encoder: PreTrainedModel, places: Collection[int]) -> Iterator[None]:
    """Inside the block the encoder skips some of its layers."""
    path, layers = layers_path(encoder), encoder_layers(encoder)
    left = [layer for place, layer in enumerate(layers) if place not in places]
    encoder.set_submodule(path, nn.ModuleList(left))
    try:
        yield
    finally:
        encoder.set_submodule(path, nn.ModuleList(layers))


def _loss(
    model: Classifier,
    gone: Collection[int],
    examples: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    train: TrainConfig,
    pad_id: int,
) -> float:
    with without_layers(model.encoder, gone):
        logits = record_logits(model, examples, pad_id=pad_id, how=train.window_pooling)
    targets = {
        name: torch.from_numpy(rows) for name, rows in label_matrices(examples, heads).items()
    }
    return float(plain_loss(torch.from_numpy(logits), targets, heads))
