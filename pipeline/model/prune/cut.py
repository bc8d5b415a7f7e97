"""Cutting for real: rows and columns of matrices, and whole layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.model.layers import encoder_layers, keep_layers, layers_path
from pipeline.model.prune.anatomy import Block, LayerParts, family_of, layer_parts
from schemas.errors import ConfigError
from schemas.prune import KeptLayer, PrunedShape

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from transformers import PreTrainedModel

_SHAPE = "pruned_shape"  # attribute of an encoder that was cut
_KEPT_HEADS = "kept_heads"
# How attention modules call what follows from their number of heads.
_HEAD_COUNTS = ("num_attention_heads", "n_heads", "num_heads")


def shape_of(encoder: PreTrainedModel) -> PrunedShape:
    """What is left of an encoder, in numbers that count from before any cut.

    Raises:
        ConfigError: see `family_of`.
    """
    recorded = getattr(encoder, _SHAPE, None)
    if isinstance(recorded, PrunedShape):
        return recorded
    return PrunedShape(
        layers=tuple(
            KeptLayer(
                layer=number,
                heads=tuple(range(parts.heads.n_groups)),
                neurons=tuple(range(parts.neurons.n_groups)),
            )
            for number, parts in enumerate(layer_parts(encoder))
        )
    )


def is_pruned(encoder: nn.Module) -> bool:
    """Whether an encoder was cut, so that its config no longer says its shapes."""
    return hasattr(encoder, _SHAPE)


def drop_layers(encoder: PreTrainedModel, places: Collection[int]) -> None:
    """Takes the layers at `places`, counted from 0 among those there are, out of an encoder.

    Raises:
        ConfigError: there is no such layer, none would be left, or the family needs its lowest.
    """
    if not places:
        return
    family, shape, layers = family_of(encoder), shape_of(encoder), encoder_layers(encoder)
    _check_places(family.needs_first, places, len(layers))
    kept = [place for place in range(len(layers)) if place not in places]
    left = nn.ModuleList(layers[place] for place in kept)
    encoder.set_submodule(layers_path(encoder), left)
    keep_layers(encoder.config, kept)
    setattr(encoder, _SHAPE, PrunedShape(layers=tuple(shape.layers[place] for place in kept)))


def keep_parts(
    encoder: PreTrainedModel, kept: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> None:
    """Leaves of each layer the heads and neurons whose places among those there are are given.

    Raises:
        ConfigError: the family's attention cannot do with fewer heads.
    """
    family, shape, layers = family_of(encoder), shape_of(encoder), []
    for parts, before, (heads, neurons) in zip(
        layer_parts(encoder), shape.layers, kept, strict=True
    ):
        after = KeptLayer(
            layer=before.layer,
            heads=tuple(before.heads[place] for place in heads),
            neurons=tuple(before.neurons[place] for place in neurons),
        )
        if len(heads) < parts.heads.n_groups:
            if not family.cuts_heads:
                raise ConfigError(no_heads_message(encoder))
            _keep_heads(parts, heads)
            if family.shares_bias:
                _choose_bias(parts.attention, after.heads)
        _keep_groups(parts.neurons, neurons)
        layers.append(after)
    setattr(encoder, _SHAPE, PrunedShape(layers=tuple(layers)))


def take_shape(encoder: PreTrainedModel, shape: PrunedShape) -> None:
    """Cuts an encoder that was built anew to the shape that another one was pruned to."""
    keep_parts(encoder, [(layer.heads, layer.neurons) for layer in shape.layers])
    setattr(encoder, _SHAPE, shape)


def no_heads_message(encoder: PreTrainedModel) -> str:
    """What to say of an encoder all of whose heads must stay."""
    return (
        f"compress.prune.heads: the attention of the family {encoder.config.model_type!r} "
        f"needs all of its heads; set it to 0 and prune neurons or layers"
    )


def _check_places(needs_first: bool, places: Collection[int], depth: int) -> None:
    if not set(places) <= set(range(depth)) or len(places) >= depth:
        raise ConfigError(
            f"compress.prune.layers: got {sorted(places)} of an encoder with the layers 0 to "
            f"{depth - 1}; name some of these, and leave at least one"
        )
    if needs_first and 0 in places:
        raise ConfigError(
            "compress.prune.layers: layer 0 of this family is unlike the others and must stay; "
            "name others"
        )


def _keep_heads(parts: LayerParts, places: Sequence[int]) -> None:
    attention: Any = parts.attention
    _keep_groups(parts.heads, places)
    for name in filter(lambda name: hasattr(attention, name), _HEAD_COUNTS):
        setattr(attention, name, len(places))
    if hasattr(attention, "all_head_size"):
        attention.all_head_size = len(places) * parts.heads.group


def _choose_bias(attention: nn.Module, heads: Sequence[int]) -> None:
    """Has attention take its own heads' part of a position bias that all layers share (MPNet)."""
    is_new = not hasattr(attention, _KEPT_HEADS)
    attention.register_buffer(_KEPT_HEADS, torch.tensor(heads), persistent=False)
    if is_new:
        attention.register_forward_pre_hook(_kept_bias, with_kwargs=True)


def _kept_bias(
    attention: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of attention with the position bias `(B, heads, T, T)` of the heads left."""
    heads = getattr(attention, _KEPT_HEADS)
    if named.get("position_bias") is not None:
        named = named | {"position_bias": named["position_bias"][:, heads]}
    elif len(given) > 2 and isinstance(given[2], Tensor):
        given = (*given[:2], given[2][:, heads], *given[3:])
    return given, named


def _keep_groups(block: Block, places: Sequence[int]) -> None:
    """Leaves rows of the makers and columns of the reader."""
    width = block.reader.in_features
    columns = [place * block.group + at for place in places for at in range(block.group)]
    if len(columns) == width:
        return
    rows = [part * width + column for part in range(block.parts) for column in columns]
    for maker in block.makers:
        maker.weight = _chosen(maker.weight, rows, dim=0)
        if maker.bias is not None:
            maker.bias = _chosen(maker.bias, rows, dim=0)
        maker.out_features = len(rows)
    block.reader.weight = _chosen(block.reader.weight, columns, dim=1)
    block.reader.in_features = len(columns)


def _chosen(weight: Tensor, places: list[int], *, dim: int) -> nn.Parameter:
    index = torch.tensor(places, device=weight.device)
    chosen = weight.detach().index_select(dim, index).contiguous()
    return nn.Parameter(chosen, requires_grad=weight.requires_grad)
