"""A tiny classifier of every family, with enough parts to cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch import nn

from pipeline.model.network import Classifier

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def classifier_of(family_encoder: Callable[..., nn.Module]) -> Callable[[str], Classifier]:
    """An untrained classifier of a family, in evaluation mode; its biases are not zero."""

    def make(family: str) -> Classifier:
        encoder = family_encoder(family, hidden_size=24, num_hidden_layers=3, num_attention_heads=3)
        model = Classifier(encoder, n_logits=4, pooling="mean", dropout=0.0)
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(weight, std=0.2)
        nn.init.normal_(model.heads.weight)
        return model.eval()

    return make
