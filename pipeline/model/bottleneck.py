"""Bottleneck adapters: small layers that train between frozen ones, and stay part of the model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file
from torch import nn

from pipeline.model.backbone import locate
from pipeline.model.layers import encoder_layers
from pipeline.model.recipe import weight_counts
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from schemas.train import AdapterConfig

log = logging.getLogger(__name__)
ADAPTERS_FILE = "adapters.safetensors"
# The layer that ends a feed-forward block, by its name within an encoder layer: that of BERT,
# RoBERTa, MPNet and Longformer, of DistilBERT, of ModernBERT.
_FEED_FORWARD_ENDS = ("output.dense", "ffn.lin2", "mlp.Wo")
_CHILD = "adapter"  # what an adapter is called within that layer, and so in names of weights
_START_STD = 0.01  # of the weights that narrow; Houlsby et al. 2019, 3.6


class Bottleneck(nn.Module):
    """Hidden states `(B, T, H)` plus what a narrow layer makes of them; at first that is nothing.

    Houlsby et al. 2019 with one adapter a layer, behind the feed-forward block (Pfeiffer et al.
    2021 found the second one, behind attention, to add little).
    """

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(hidden_size, width)
        self.up = nn.Linear(width, hidden_size)
        nn.init.normal_(self.down.weight, std=_START_STD)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, hidden: Tensor) -> Tensor:
        """The hidden states, changed by what is learned."""
        changed: Tensor = self.up(nn.functional.gelu(self.down(hidden)))
        return hidden + changed


def insert_adapters(encoder: PreTrainedModel, config: AdapterConfig | None) -> None:
    """Gives each layer of `encoder` an adapter, that training starts at the pretrained function.

    They are children of the layers that they stand behind, so that all other weights keep their
    names.

    Raises:
        ConfigError: the encoder's layers are of an unknown kind.
    """
    if config is None:
        return
    layers = encoder_layers(encoder)
    ends = [end for end in map(_feed_forward_end, layers) if end is not None]
    if not layers or len(ends) != len(layers):
        raise ConfigError(
            f"train.adapter: got a backbone of kind {encoder.config.model_type!r}, in whose layers "
            f"none of {', '.join(_FEED_FORWARD_ENDS)} is there to put an adapter behind; use "
            f"train.lora or train.frozen_layers"
        )
    for end in ends:
        end.add_module(_CHILD, Bottleneck(end.out_features, config.width))
        end.register_forward_hook(_through_adapter)


def freeze_around_adapters(encoder: nn.Module, config: AdapterConfig | None) -> None:
    """Only adapters train from here on, and by `norms` the norms that are not of embeddings."""
    if config is None:
        return
    for name, module in encoder.named_modules():
        is_norm = isinstance(module, nn.LayerNorm) and "embedding" not in name
        trains = _is_adapters(name) or (config.norms and is_norm)
        for weight in module.parameters(recurse=False):
            weight.requires_grad = trains
    log.info("adapters: %d of the encoder's %d weights are trained", *weight_counts(encoder))


def check_has_none(backbone: str) -> None:
    """Makes sure that a backbone is no checkpoint whose encoder only means something with adapters.

    Raises:
        ConfigError: it is.
        ArtifactError: it does not exist.
    """
    if (Path(locate(backbone)) / ADAPTERS_FILE).exists():
        raise ConfigError(
            f"train.backbone {backbone!r}: got a checkpoint with adapters, without which its "
            f"encoder is another one; take the backbone that they were trained on"
        )


def load_adapters(encoder: nn.Module, folder: Path) -> None:
    """Gives the adapters of `encoder` the weights that are in a checkpoint.

    Raises:
        ArtifactError: they are not there, or of another width; or they are, but not asked for.
    """
    path = folder / ADAPTERS_FILE
    wanted, found = adapter_weights(encoder), load_file(path) if path.exists() else {}
    widths = [{name: value.shape for name, value in each.items()} for each in (wanted, found)]
    if widths[0] != widths[1]:
        raise ArtifactError(
            f"{folder}: got {len(found)} weights of adapters, expected {len(wanted)} of the width "
            f"in train.adapter; set it as it was, or run the step `finetune` under another --run"
        )
    encoder.load_state_dict(found, strict=False)


def adapter_weights(encoder: nn.Module) -> dict[str, Tensor]:
    """The weights of its adapters by their names in `encoder`; none where it has none."""
    return {name: value for name, value in encoder.state_dict().items() if _is_adapters(name)}


def weights_without_adapters(encoder: nn.Module) -> dict[str, Tensor]:
    """All other weights of `encoder`: those of an encoder of its family."""
    return {name: value for name, value in encoder.state_dict().items() if not _is_adapters(name)}


def _feed_forward_end(layer: nn.Module) -> nn.Linear | None:
    for name in _FEED_FORWARD_ENDS:
        try:
            found = layer.get_submodule(name)
        except AttributeError:
            continue
        if isinstance(found, nn.Linear):
            return found
    return None


def _through_adapter(end: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """A hook, so that the layer itself and the names of its weights stay as they are."""
    changed: Tensor = end.get_submodule(_CHILD)(output)
    return changed


def _is_adapters(name: str) -> bool:
    return _CHILD in name.split(".")
