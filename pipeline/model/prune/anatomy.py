"""Where the encoders of each family keep their layers, attention heads and neurons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from pipeline.model.layers import encoder_layers
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    """How one family of encoders calls the modules of a layer, and what of it must stay.

    Names are dotted and count from the layer, those of `makers` from `attention`: what makes
    queries, keys and values, in `head_parts` parts each. `reader` takes up what the heads found,
    and `inner` and `outer` are the feed-forward network's, `inner` with `neuron_parts` rows for a
    neuron. `head_size` is attention's attribute that says how wide a head is.

    With `cuts_heads` false all heads stay: the family's attention wants as many numbers out as in.
    With `needs_first` the lowest layer is built in another way than the rest and stays, too. With
    `shares_bias` attention gets a position bias of all the heads that there were.
    """

    attention: str
    makers: tuple[str, ...]
    reader: str
    inner: str = "intermediate.dense"
    outer: str = "output.dense"
    head_size: str = "attention_head_size"
    head_parts: int = 1
    neuron_parts: int = 1
    cuts_heads: bool = True
    needs_first: bool = False
    shares_bias: bool = False

    def parts(self, layer: nn.Module) -> LayerParts:
        """What can be cut of a layer."""
        attention = layer.get_submodule(self.attention)
        return LayerParts(
            attention,
            heads=Block(
                tuple(_linear(attention, name) for name in self.makers),
                _linear(layer, self.reader),
                group=getattr(attention, self.head_size),
                parts=self.head_parts,
            ),
            neurons=Block(
                (_linear(layer, self.inner),), _linear(layer, self.outer), parts=self.neuron_parts
            ),
        )


def _linear(module: nn.Module, name: str) -> nn.Linear:
    found = module.get_submodule(name)
    if not isinstance(found, nn.Linear):
        raise TypeError(f"{name}: expected a linear layer, got {type(found).__name__}")
    return found


_BERT = Family("attention.self", ("query", "key", "value"), "attention.output.dense")
_FAMILIES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": Family(
        "attention", ("q_lin", "k_lin", "v_lin"), "attention.out_lin",
        inner="ffn.lin1", outer="ffn.lin2",
    ),
    "mpnet": Family(
        "attention.attn", ("q", "k", "v"), "attention.attn.o", shares_bias=True,
    ),
    "modernbert": Family(
        "attn", ("Wqkv",), "attn.Wo", inner="mlp.Wi", outer="mlp.Wo", head_size="head_dim",
        head_parts=3,
        neuron_parts=2,  # the value, then its gate
        needs_first=True,
    ),
    "longformer": Family(
        "attention.self",
        ("query", "key", "value", "query_global", "key_global", "value_global"),
        "attention.output.dense",
        head_size="head_dim",
        cuts_heads=False,
    ),
}  # fmt: skip


def family_of(encoder: PreTrainedModel) -> Family:
    """The family of an encoder.

    Raises:
        ConfigError: it is none that is known.
    """
    kind = encoder.config.model_type
    if kind not in _FAMILIES:
        raise ConfigError(
            f"compress.prune: encoders of the family {kind!r} cannot be pruned, only "
            f"{', '.join(sorted(_FAMILIES))}; take another train.backbone or leave it out"
        )
    return _FAMILIES[kind]


def layer_parts(encoder: PreTrainedModel) -> list[LayerParts]:
    """What can be cut of each layer, the lowest first.

    Raises:
        ConfigError: see `family_of`.
    """
    family = family_of(encoder)
    return [family.parts(layer) for layer in encoder_layers(encoder)]
