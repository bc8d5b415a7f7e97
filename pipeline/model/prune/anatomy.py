"""Where the encoders of each family keep their layers, attention heads and neurons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Block:
    """Groups of numbers that linear layers make and another reads: heads, or single neurons.

    Each of `makers` has the rows of all groups `parts` times, one after another: three times where
    queries, keys and values are one matrix. `group` is how many numbers a group has.
    """

    makers: tuple[nn.Linear, ...]
    reader: nn.Linear
    group: int = 1
    parts: int = 1

    @property
    def n_groups(self) -> int:
        """How many heads or neurons there are now."""
        return self.reader.in_features // self.group


@dataclass(frozen=True)
class LayerParts:
    """What of one layer can be cut; `attention` is the module that knows how many heads it has."""

    attention: nn.Module
    heads: Block
    neurons: Block


@dataclass(frozen=True)
class Family:
    """How one family of encoders can be pruned.

    `stack` is the dotted name of the list of layers. With `cuts_heads` false all heads stay: the
    family's attention wants as many numbers out as in. With `needs_first` the lowest layer is
    built in another way than the rest and stays, too. With `shares_bias` attention gets a position
    bias of all the heads that there were.
    """

    stack: str
    parts: Callable[[Any], LayerParts]
    cuts_heads: bool = True
    needs_first: bool = False
    shares_bias: bool = False


def family_of(encoder: nn.Module) -> Family:
    """The family of an encoder.

    Raises:
        ConfigError: it is none that is known.
    """
    kind = str(getattr(encoder.config, "model_type", ""))
    if kind not in _FAMILIES:
        raise ConfigError(
            f"compress.prune: encoders of the family {kind!r} cannot be pruned, only "
            f"{', '.join(sorted(_FAMILIES))}; take another train.backbone or leave it out"
        )
    return _FAMILIES[kind]


def layer_stack(encoder: nn.Module) -> nn.ModuleList:
    """The layers of an encoder, the lowest first.

    Raises:
        ConfigError: see `family_of`.
    """
    stack = encoder.get_submodule(family_of(encoder).stack)
    if not isinstance(stack, nn.ModuleList):
        raise TypeError(f"expected a list of layers, got {type(stack).__name__}")
    return stack


def layer_parts(encoder: nn.Module) -> list[LayerParts]:
    """What can be cut of each layer, the lowest first.

    Raises:
        ConfigError: see `family_of`.
    """
    family = family_of(encoder)
    return [family.parts(layer) for layer in layer_stack(encoder)]


def _bert(layer: Any) -> LayerParts:
    attention = layer.attention.self
    return LayerParts(
        attention,
        Block(
            (attention.query, attention.key, attention.value),
            layer.attention.output.dense,
            group=attention.attention_head_size,
        ),
        Block((layer.intermediate.dense,), layer.output.dense),
    )


def _longformer(layer: Any) -> LayerParts:
    attention = layer.attention.self
    kinds = [
        getattr(attention, f"{name}{kind}")
        for name in ("query", "key", "value")
        for kind in ("", "_global")
    ]
    return LayerParts(
        attention,
        Block(tuple(kinds), layer.attention.output.dense, group=attention.head_dim),
        Block((layer.intermediate.dense,), layer.output.dense),
    )


def _distilbert(layer: Any) -> LayerParts:
    attention = layer.attention
    return LayerParts(
        attention,
        Block(
            (attention.q_lin, attention.k_lin, attention.v_lin),
            attention.out_lin,
            group=attention.attention_head_size,
        ),
        Block((layer.ffn.lin1,), layer.ffn.lin2),
    )


def _mpnet(layer: Any) -> LayerParts:
    attention = layer.attention.attn
    return LayerParts(
        attention,
        Block(
            (attention.q, attention.k, attention.v),
            attention.o,
            group=attention.attention_head_size,
        ),
        Block((layer.intermediate.dense,), layer.output.dense),
    )


def _modernbert(layer: Any) -> LayerParts:
    attention = layer.attn
    return LayerParts(
        attention,
        Block((attention.Wqkv,), attention.Wo, group=attention.head_dim, parts=3),
        Block((layer.mlp.Wi,), layer.mlp.Wo, parts=2),  # of a neuron the value, then its gate
    )


_BERT = Family("encoder.layer", _bert)
_FAMILIES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": Family("transformer.layer", _distilbert),
    "mpnet": Family("encoder.layer", _mpnet, shares_bias=True),
    "modernbert": Family("layers", _modernbert, needs_first=True),
    "longformer": Family("encoder.layer", _longformer, cuts_heads=False),
}
