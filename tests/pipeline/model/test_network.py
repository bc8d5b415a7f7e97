from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pipeline.batch import window_inputs
from pipeline.model.backbone import check_length
from pipeline.model.checkpoint import new_classifier
from pipeline.model.gate import TorchEncoder
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier, Pooling
    from schemas.task import TrainConfig


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_padding_changes_no_logit(
    pooling: str,
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
    toy_examples: list[Example],
) -> None:
    encoder = TorchEncoder(new_classifier(toy_config(pooling=pooling), toy_heads))
    windows = [example.windows[0] for example in toy_examples[:8]]
    padded = encoder.run(window_inputs(windows, multiple=16))
    np.testing.assert_allclose(padded, encoder.logits(windows), atol=1e-5)
    assert np.ptp(padded, axis=0).min() > 1e-2  # the rows do differ, so equality says something


def test_pooling_takes_what_it_says(tiny_model: Classifier, toy_examples: list[Example]) -> None:
    inputs = {
        name: torch.from_numpy(array)
        for name, array in window_inputs([toy_examples[0].windows[0]]).items()
    }
    with torch.no_grad():
        hidden = tiny_model.encoder(**inputs).last_hidden_state
        mean = tiny_model(**inputs)
        tiny_model.pooling = "cls"
        first = tiny_model(**inputs)
        tiny_model.pooling = "max"
        greatest = tiny_model(**inputs)
    torch.testing.assert_close(mean, tiny_model.heads(hidden.mean(dim=1)))
    torch.testing.assert_close(first, tiny_model.heads(hidden[:, 0]))
    torch.testing.assert_close(greatest, tiny_model.heads(hidden.amax(dim=1)))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_fully_masked_row_gives_numbers(
    pooling: Pooling, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    tiny_model.pooling = pooling
    inputs = window_inputs([example.windows[0] for example in toy_examples[:2]])
    inputs["attention_mask"][1] = 0
    logits = TorchEncoder(tiny_model).run(inputs)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[1], tiny_model.heads.bias.detach().numpy(), atol=1e-6)


def test_windows_longer_than_the_backbone_reads_are_a_config_error(tiny_model: Classifier) -> None:
    check_length(tiny_model.encoder, max_tokens=512, setting="window.max_tokens")
    with pytest.raises(
        ConfigError, match=r"window\.max_tokens 513 is more than the backbone reads"
    ):
        check_length(tiny_model.encoder, max_tokens=513, setting="window.max_tokens")


def test_attention_over_windows_adds_a_column(
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
    toy_examples: list[Example],
) -> None:
    plain = new_classifier(toy_config(), toy_heads)
    model = new_classifier(toy_config(window_pooling="attention"), toy_heads)
    windows = [example.windows[0] for example in toy_examples[:3]]
    assert (model.n_logits, model.heads.out_features) == (5, 6)
    assert (plain.n_logits, plain.heads.out_features) == (5, 5)
    assert TorchEncoder(model).logits(windows).shape == (3, 6)
