"""A tiny classifier of every family, and texts for it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    LongformerConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from pipeline.model.network import Classifier
from pipeline.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3,
    "intermediate_size": 32, "max_position_embeddings": 80, "initializer_range": 0.3,
}  # fmt: skip
ROBERTA = SIZES | {"type_vocab_size": 1, "pad_token_id": 1}
CONFIGS: dict[str, Any] = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**ROBERTA),
    "xlm-roberta": XLMRobertaConfig(**ROBERTA),
    "mpnet": MPNetConfig(**SIZES),
    "distilbert": DistilBertConfig(
        vocab_size=64, dim=24, n_layers=3, n_heads=3, hidden_dim=32, max_position_embeddings=80,
        initializer_range=0.3,
    ),
    "modernbert": ModernBertConfig(
        **SIZES, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3,
        local_attention=16,
    ),
    "longformer": LongformerConfig(**ROBERTA, attention_window=8),
}  # fmt: skip


@pytest.fixture(scope="session")
def classifier_of() -> Callable[[str], Classifier]:
    """An untrained classifier of a family, in evaluation mode; its biases are not zero."""

    def make(family: str) -> Classifier:
        torch.manual_seed(3)
        encoder = AutoModel.from_config(copy.deepcopy(CONFIGS[family]))
        model = Classifier(encoder, n_logits=4, pooling="mean", dropout=0.0)
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(weight, std=0.2)
        nn.init.normal_(model.heads.weight)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def some_windows() -> list[Window]:
    """Three windows of different lengths."""
    chooser = torch.Generator().manual_seed(3)
    return [
        Window((2, *torch.randint(5, 64, (n - 2,), generator=chooser).tolist(), 3), (0,) * n, 0, 1)
        for n in (5, 23, 11)
    ]
