"""What training does in numbers: recipe, rates, schedule and what stays frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.model.recipe import (
    Recipe,
    choose_recipe,
    freeze_lowest,
    parameter_groups,
    rate_factor,
)
from schemas.task import LoraConfig, TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.network import Classifier
    from schemas.train import Precision

RECIPE = Recipe(1, 1e-4, "a test")


@pytest.mark.parametrize(
    ("n_train", "hidden_size", "epochs", "batch_size", "rate", "head_rate"),
    [
        (9_000, 384, 6, 32, 2e-4, 1e-3),
        (9_999, 768, 4, 32, 3e-5, 5e-4),
        (10_000, 512, 4, 48, 2e-4, 1e-3),
        (99_999, 768, 3, 48, 3e-5, 5e-4),
        (100_000, 384, 3, 96, 2e-4, 1e-3),
        (500_000, 1024, 2, 96, 3e-5, 5e-4),
    ],
)
def test_recipe_by_size_and_width(
    n_train: int, hidden_size: int, epochs: int, batch_size: int, rate: float, head_rate: float
) -> None:
    recipe = choose_recipe(TrainConfig(), n_train=n_train, hidden_size=hidden_size)
    why = f"{n_train} training records, encoder {hidden_size} wide"
    assert recipe == Recipe(epochs, rate, why, batch_size, head_rate)


@pytest.mark.parametrize(("hidden_size", "rate"), [(384, 1e-3), (768, 4e-4)])
def test_low_rank_updates_want_a_higher_rate(hidden_size: int, rate: float) -> None:
    config = TrainConfig(lora=LoraConfig())
    recipe = choose_recipe(config, n_train=500, hidden_size=hidden_size)
    assert recipe.learning_rate == rate
    assert recipe.why.endswith("wide, low-rank updates")


@pytest.mark.parametrize(
    ("asked", "has_it", "precision"),
    [(None, True, "bf16"), (None, False, "fp32"), ("fp32", True, "fp32"), ("bf16", False, "bf16")],
)
def test_precision_is_what_the_processor_does_unless_asked(
    asked: Precision | None, has_it: bool, precision: str
) -> None:
    config = TrainConfig(precision=asked)
    recipe = choose_recipe(config, n_train=9, hidden_size=384, computes_in_bf16=has_it)
    assert recipe.precision == precision
    assert precision in str(recipe)


def test_the_task_file_has_the_last_word() -> None:
    config = TrainConfig(epochs=9, learning_rate=7e-6, batch_size=5, head_learning_rate=3e-3)
    recipe = choose_recipe(config, n_train=500, hidden_size=384)
    assert recipe == Recipe(9, 7e-6, "500 training records, encoder 384 wide", 5, 3e-3)


def test_warmup_rises_and_then_falls_to_zero() -> None:
    factor = rate_factor("linear", 10, 0.2)
    assert [factor(step) for step in range(11)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]
    )


def test_a_cosine_falls_late_and_flattens() -> None:
    factor = rate_factor("cosine", 10, 0.2)
    assert [factor(step) for step in (0, 1, 2, 4, 6, 8, 10, 11)] == pytest.approx(
        [0.5, 1.0, 1.0, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0.0, 0.0]
    )


def test_without_warmup_the_first_step_is_whole() -> None:
    assert rate_factor("linear", 4, 0.0)(0) == 1.0
    assert rate_factor("linear", 1, 1.0)(0) == 1.0
    assert rate_factor("linear", 4, 0.0)(9) == 0.0


def test_rates_by_layer_and_decay_by_shape(
    tiny_model: Classifier, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(layer_decay=0.5, weight_decay=0.1)
    recipe = Recipe(1, 1.0, "a test", head_learning_rate=7.0)
    groups = parameter_groups(tiny_model, config, recipe)
    settings = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in groups
        for parameter in group["params"]
    }
    named = {name: settings[id(parameter)] for name, parameter in tiny_model.named_parameters()}
    assert len(settings) == sum(len(group["params"]) for group in groups) == len(named)
    assert named["heads.weight"] == (7.0, 0.1)
    assert named["heads.bias"] == (7.0, 0.0)
    assert named["encoder.encoder.layer.1.attention.self.query.weight"] == (1.0, 0.1)
    assert named["encoder.encoder.layer.0.output.dense.weight"] == (0.5, 0.1)
    assert named["encoder.encoder.layer.0.output.LayerNorm.weight"] == (0.5, 0.0)
    assert named["encoder.encoder.layer.0.output.dense.bias"] == (0.5, 0.0)
    assert named["encoder.embeddings.word_embeddings.weight"] == (0.25, 0.1)
    assert named["encoder.embeddings.LayerNorm.weight"] == (0.25, 0.0)


def test_frozen_parameters_are_left_out(
    tiny_model: Classifier, toy_config: Callable[..., TrainConfig]
) -> None:
    tiny_model.encoder.requires_grad_(False)
    groups = parameter_groups(tiny_model, toy_config(), RECIPE)
    assert [len(group["params"]) for group in groups] == [1, 1]


@pytest.mark.parametrize(("layers", "frozen"), [(None, 0), (0, 5), (1, 5 + 16), (2, 5 + 32)])
def test_embeddings_and_lowest_layers_stay_frozen(
    tiny_model: Classifier, layers: int | None, frozen: int
) -> None:
    freeze_lowest(tiny_model, layers)
    still = [name for name, p in tiny_model.named_parameters() if not p.requires_grad]
    assert len(still) == frozen
    assert all(p.requires_grad for p in tiny_model.heads.parameters())
    trained = [
        p for group in parameter_groups(tiny_model, TrainConfig(), RECIPE) for p in group["params"]
    ]
    assert len(trained) + frozen == len(list(tiny_model.parameters()))
