"""Settings of training that do not go together are refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.task import LoraConfig, TrainConfig


def test_what_is_left_open_is_null_and_nothing_new_is_on() -> None:
    config = TrainConfig()
    assert (config.epochs, config.batch_size, config.learning_rate) == (None, None, None)
    assert config.head_learning_rate is None
    assert (config.schedule, config.precision, config.strategy) == ("linear", "fp32", "ddp")
    assert (config.accumulate_steps, config.gradient_checkpointing) == (1, False)
    assert (config.adversarial_epsilon, config.r_drop_alpha, config.lora) == (None, 0.0, None)


def test_lora_alone_means_its_defaults() -> None:
    lora = TrainConfig.model_validate({"lora": {}}).lora
    assert lora == LoraConfig(rank=8, alpha=16, dropout=0.0, target="attention")


@pytest.mark.parametrize("other", [{"lora": {}}, {"frozen_layers": 0}])
def test_frozen_embeddings_have_no_gradient_to_move_along(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="adversarial_epsilon moves the embeddings"):
        TrainConfig.model_validate({"adversarial_epsilon": 1.0, **other})


def test_r_drop_wants_dropout() -> None:
    with pytest.raises(ValidationError, match="r_drop_alpha compares passes"):
        TrainConfig(r_drop_alpha=1.0, dropout=0.0)
    assert TrainConfig(r_drop_alpha=1.0).dropout == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"accumulate_steps": 0},
        {"adversarial_epsilon": 0.0},
        {"r_drop_alpha": -1.0},
        {"schedule": "constant"},
        {"precision": "fp8"},
        {"strategy": "dp"},
        {"lora": {"rank": 0}},
        {"lora": {"target": "query"}},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.model_validate(wrong)
    assert caught.value.error_count() == 1
