"""A shallower encoder made of some layers of a deeper one."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from pipeline.model.distil.capture import check_layers
from pipeline.model.layers import encoder_layers
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn
    from transformers import PretrainedConfig

_SETTING = "distil.student.layers"


def pick_layers(encoder: nn.Module, layers: Sequence[int]) -> nn.Module:
    """A new encoder with the embeddings and the `layers` of `encoder`, in evaluation.

    Raises:
        ConfigError: there are no such layers, or not to be had apart from the others.
    """
    config: PretrainedConfig = encoder.config
    depth = int(config.num_hidden_layers)
    check_layers(layers, depth=depth, setting=_SETTING)
    if not encoder_layers(encoder):
        raise ConfigError(
            f"{_SETTING}: the layers of the family {config.model_type!r} share their weights; "
            f"leave distil.student out"
        )
    picked = type(encoder)(_shallower(config, layers), **_options(encoder))
    try:
        found = picked.load_state_dict(_renumbered(encoder, layers), strict=False)
    except RuntimeError as error:  # pruned ones have shapes of their own
        raise ConfigError(
            f"{_SETTING}: the layers are not as large as their family's are ({error}); leave "
            f"distil.student out, or take a model that was not pruned"
        ) from error
    unlike = [*found.missing_keys, *found.unexpected_keys]
    if unlike:  # ModernBERT's first layer is made otherwise than the rest
        raise ConfigError(
            f"{_SETTING} {list(layers)}: a picked layer cannot stand in another's place "
            f"({unlike[0]}); try to begin with layer 0"
        )
    return picked.eval()


def _options(encoder: nn.Module) -> dict[str, Any]:
    """BERT's kin have a pooler that we leave out, see `load_encoder`."""
    has_choice = hasattr(encoder, "pooler")
    return {"add_pooling_layer": encoder.pooler is not None} if has_choice else {}


def _shallower(config: PretrainedConfig, layers: Sequence[int]) -> PretrainedConfig:
    """The settings with as many layers, and of what is set by layer only theirs."""
    depth, changed = int(config.num_hidden_layers), copy.deepcopy(config)
    for name, value in config.to_dict().items():
        if isinstance(value, list | tuple) and len(value) == depth:
            setattr(changed, name, [value[layer] for layer in layers])
    changed.num_hidden_layers = len(layers)
    return changed


def _renumbered(encoder: nn.Module, layers: Sequence[int]) -> dict[str, Tensor]:
    """The weights of what stays, the layers' with their new numbers."""
    (path,) = [
        name
        for name, module in encoder.named_modules()
        if list(module.children()) == encoder_layers(encoder)
    ]
    number = re.compile(rf"^{re.escape(path)}\.(\d+)\.")
    places = {layer: place for place, layer in enumerate(layers)}
    weights = {}
    for name, weight in encoder.state_dict().items():
        match = number.match(name)
        if match is None:
            weights[name] = weight
        elif int(match[1]) in places:
            place = places[int(match[1])]
            weights[f"{path}.{place}.{name[match.end() :]}"] = weight
    return weights
