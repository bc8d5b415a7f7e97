"""Where an encoder's layers are, whatever its family calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PretrainedConfig, PreTrainedModel


def layers_path(encoder: PreTrainedModel) -> str | None:
    """The dotted name of the encoder's first list of modules that is as long as its config says.

    None where layers share their weights, as ALBERT's do.
    """
    depth = encoder.config.num_hidden_layers
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return str(name)
    return None


def encoder_layers(encoder: PreTrainedModel) -> list[nn.Module]:
    """The encoder's layers, the lowest first; none where `layers_path` is None."""
    path = layers_path(encoder)
    return [] if path is None else list(encoder.get_submodule(path))


def keep_layers(config: PretrainedConfig, places: Sequence[int]) -> None:
    """Makes settings those of an encoder of the layers at `places`.

    What is set by layer, such as ModernBERT's kinds of attention, is that of these layers.
    """
    depth = config.num_hidden_layers
    for name, value in config.to_dict().items():
        if isinstance(value, list | tuple) and len(value) == depth:
            setattr(config, name, [value[place] for place in places])
    config.num_hidden_layers = len(places)
