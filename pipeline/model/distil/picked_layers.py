"""A shallower encoder made of some layers of a deeper one."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from pipeline.model.distil.capture import check_layers
from pipeline.model.layers import keep_layers, layers_path
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

_SETTING = "distil.student.layers"


def pick_layers(encoder: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """A new encoder with the embeddings and the `layers` of `encoder`, in evaluation.

    Raises:
        ConfigError: there are no such layers, or not to be had apart from the others.
    """
    config = copy.deepcopy(encoder.config)
    check_layers(layers, depth=config.num_hidden_layers, setting=_SETTING)
    path = layers_path(encoder)
    if path is None:
        raise ConfigError(
            f"{_SETTING}: the layers of the family {config.model_type!r} share their weights; "
            f"leave distil.student out"
        )
    kept = _renumbered(encoder.state_dict(), path, layers)
    keep_layers(config, layers)
    picked: PreTrainedModel = type(encoder)(config, **_options(encoder))
    try:
        found = picked.load_state_dict(kept, strict=False)
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


def _options(encoder: PreTrainedModel) -> dict[str, Any]:
    """BERT's kin have a pooler that we leave out, see `load_encoder`."""
    has_choice = hasattr(encoder, "pooler")
    return {"add_pooling_layer": encoder.pooler is not None} if has_choice else {}


def _renumbered(state: Mapping[str, Tensor], path: str, layers: Sequence[int]) -> dict[str, Tensor]:
    """The weights of what stays, those of the layers under `path` with their new numbers."""
    number = re.compile(rf"^{re.escape(path)}\.(\d+)\.")
    places = {layer: place for place, layer in enumerate(layers)}
    weights = {}
    for name, weight in state.items():
        match = number.match(name)
        if match is None:
            weights[name] = weight
        elif int(match[1]) in places:
            place = places[int(match[1])]
            weights[f"{path}.{place}.{name[match.end() :]}"] = weight
    return weights
