"""What a classifier weighs and how much it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from pipeline.model.layers import encoder_layers
from pipeline.model.prune.anatomy import layer_parts
from schemas.prune import ModelSize

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline.model.network import Classifier


def model_size(model: Classifier, *, tokens: float) -> ModelSize:
    """The size of a classifier; its work is counted for a window of so many tokens.

    A file has four bytes for each parameter, or one, and little else.
    """
    parameters = sum(weight.numel() for weight in model.parameters())
    return ModelSize(
        parameters=parameters,
        forward_mflops=round(_forward_flops(model.encoder, tokens) / 1e6, 3),
        megabytes_fp32=round(4 * parameters / 1e6, 3),
        megabytes_int8=round(parameters / 1e6, 3),
    )


def _forward_flops(encoder: PreTrainedModel, tokens: float) -> float:
    """A multiplication and an addition for each weight and token, and for each pair of tokens.

    The products of queries and keys, and of weights and values, are over all pairs of tokens.
    Embeddings are looked up, norms and activations are left out.
    """
    weights = sum(
        module.weight.numel()
        for layer in encoder_layers(encoder)
        for module in layer.modules()
        if isinstance(module, nn.Linear)
    )
    width = sum(parts.heads.reader.in_features for parts in layer_parts(encoder))
    return 2 * tokens * weights + 4 * tokens**2 * width
