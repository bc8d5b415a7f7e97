"""Settings of training that do not go together are refused before anything is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import ConfigError
from schemas.head import OutsideConfig
from schemas.load import parse_task
from schemas.task import LoraConfig, TaskConfig, TrainConfig
from schemas.train import AdapterConfig, DomainAdversarialConfig


def test_what_is_left_open_is_null_and_nothing_new_is_on() -> None:
    config = TrainConfig()
    assert (config.epochs, config.batch_size, config.learning_rate) == (None, None, None)
    assert config.head_learning_rate is None
    assert (config.schedule, config.precision, config.strategy) == ("linear", "fp32", "ddp")
    assert (config.accumulate_steps, config.gradient_checkpointing) == (1, False)
    assert (config.adversarial_epsilon, config.r_drop_alpha, config.lora) == (None, 0.0, None)


def test_the_table_of_what_turns_what_on_names_every_key() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/training.md"
    told = page.read_text(encoding="utf-8").partition("## What turns what on")[2]
    table = told.partition("### ")[0]
    codes = " ".join(re.findall(r"`([^`]+)`", table))
    named = set(re.findall(r"\w+", codes))
    assert sorted({*TrainConfig.model_fields, *OutsideConfig.model_fields} - named) == [
        "keep", "labels",  # told of where texts outside are
    ]  # fmt: skip


def test_lora_alone_means_its_defaults() -> None:
    lora = TrainConfig.model_validate({"lora": {}}).lora
    assert lora == LoraConfig(rank=8, alpha=16, dropout=0.0, target="attention")


@pytest.mark.parametrize("other", [{"lora": {}}, {"frozen_layers": 0}, {"adapter": {}}])
def test_frozen_embeddings_have_no_gradient_to_move_along(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="adversarial_epsilon moves the embeddings"):
        TrainConfig.model_validate({"adversarial_epsilon": 1.0, **other})


@pytest.mark.parametrize("other", [{"lora": {}}, {"frozen_layers": 0}])
def test_adapters_are_what_trains(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="adapter freezes the whole encoder"):
        TrainConfig.model_validate({"adapter": {}, **other})
    assert TrainConfig.model_validate({"adapter": {}}).adapter == AdapterConfig(
        width=64, norms=True
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [({"strategy": "fsdp"}, "take strategy ddp"), ({"r_drop_alpha": 1.0}, "reads each text once")],
)
def test_domains_are_read_by_a_whole_model_and_once(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainConfig.model_validate({"domain_adversarial": {}, **other})
    config = TrainConfig.model_validate({"domain_adversarial": {}, "lora": {}}).domain_adversarial
    assert config == DomainAdversarialConfig(corpus=None, weight=0.1, width=128, max_texts=20_000)


def test_what_has_adapters_is_not_pruned(tiny_task: TaskConfig) -> None:
    raw = tiny_task.model_dump(mode="json")
    raw["train"]["adapter"], raw["compress"]["prune"] = {}, {"neurons": 0.2}
    with pytest.raises(ConfigError, match=r"compress\.prune cuts the layers"):
        parse_task(raw, source="tiny")


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
        {"adapter": {"width": 0}},
        {"domain_adversarial": {"weight": 0.0}},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.model_validate(wrong)
    assert caught.value.error_count() == 1
