"""Where an encoder's layers are, whatever its family calls them."""

from __future__ import annotations

from torch import nn


def encoder_layers(encoder: nn.Module) -> list[nn.Module]:
    """The encoder's layers: its first list of modules that is as long as its config says.

    None where layers share their weights, as ALBERT's do.
    """
    depth = int(encoder.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return list(module)
    return []
