"""Parameter-efficient training: low-rank updates that leave no trace in the finished model."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from peft import LoraConfig as PeftConfig
from peft.tuners.lora import LoraModel
from torch import nn

from pipeline.model.recipe import weight_counts
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.task import LoraConfig

log = logging.getLogger(__name__)
# How encoders call the module that holds the projections: BERT and its relatives, ModernBERT.
_ATTENTION = ("attention", "attn")


@contextmanager
def low_rank_updates(encoder: nn.Module, config: LoraConfig | None) -> Iterator[None]:
    """Inside the block only low-rank updates of `encoder` train; after it they are merged.

    The merged encoder has the modules and names it had before, so whatever saves, exports or
    scores it knows nothing of LoRA. Layers that `frozen_layers` keeps get no updates. A block that
    raises leaves them unmerged.

    Raises:
        ConfigError: there is no layer to update.
    """
    if config is None:
        yield
        return
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    settings = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=_targets(encoder, config),
    )
    updated = LoraModel(encoder, settings, "default")
    log.info("LoRA: %d of the encoder's %d weights are trained", *weight_counts(encoder))
    yield
    updated.merge_and_unload(safe_merge=True)
    for name, weight in encoder.named_parameters():
        weight.requires_grad = name in trained


def _targets(encoder: nn.Module, config: LoraConfig) -> list[str]:
    linear = [
        name
        for name, module in encoder.named_modules()
        if isinstance(module, nn.Linear) and module.weight.requires_grad
    ]
    if config.target == "attention":
        linear = [name for name in linear if any(part in _ATTENTION for part in name.split("."))]
    if not linear:
        raise ConfigError(
            f"train.lora.target {config.target!r}: the backbone has no such linear layer that is "
            f"not frozen; take all-linear or lower train.frozen_layers"
        )
    return linear
