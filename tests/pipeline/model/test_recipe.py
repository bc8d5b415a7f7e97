"""What `fit` is made of: recipe, rates, schedule and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.fit import batches
from pipeline.model.recipe import choose_recipe, freeze_lowest, linear_warmup, parameter_groups
from schemas.task import TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.network import Classifier


@pytest.mark.parametrize(
    ("n_train", "hidden_size", "epochs", "rate"),
    [(500, 384, 6, 2e-4), (50_000, 768, 4, 3e-5), (500_000, 1024, 2, 3e-5)],
)
def test_recipe_by_size(n_train: int, hidden_size: int, epochs: int, rate: float) -> None:
    recipe = choose_recipe(TrainConfig(), n_train=n_train, hidden_size=hidden_size)
    assert (recipe.epochs, recipe.learning_rate) == (epochs, rate)
    assert recipe.why == f"{n_train} training records, encoder {hidden_size} wide"


def test_the_task_file_has_the_last_word() -> None:
    config = TrainConfig(epochs=9, learning_rate=7e-6)
    recipe = choose_recipe(config, n_train=500, hidden_size=384)
    assert (recipe.epochs, recipe.learning_rate) == (9, 7e-6)


def test_warmup_rises_and_then_falls_to_zero() -> None:
    factor = linear_warmup(10, 0.2)
    assert [factor(step) for step in range(11)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]
    )


def test_without_warmup_the_first_step_is_whole() -> None:
    assert linear_warmup(4, 0.0)(0) == 1.0
    assert linear_warmup(1, 1.0)(0) == 1.0
    assert linear_warmup(4, 0.0)(9) == 0.0


def test_rates_by_layer_and_decay_by_shape(
    tiny_model: Classifier, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(layer_decay=0.5, weight_decay=0.1, head_learning_rate=7.0)
    groups = parameter_groups(tiny_model, config, 1.0)
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
    groups = parameter_groups(tiny_model, toy_config(), 1.0)
    assert [len(group["params"]) for group in groups] == [1, 1]


@given(
    st.lists(st.integers(1, 256), min_size=1, max_size=300), st.integers(1, 7), st.integers(0, 5)
)
def test_every_row_is_in_exactly_one_batch(lengths: list[int], size: int, seed: int) -> None:
    made = list(batches(lengths, batch_size=size, seed=seed))
    assert sorted(row for batch in made for row in batch) == list(range(len(lengths)))
    assert max(map(len, made)) <= size
    # The schedule counts on this number.
    assert len(made) == -(-len(lengths) // size)


def test_orders_follow_the_seed() -> None:
    lengths = [row % 17 + 1 for row in range(100)]
    one, again, other = (list(batches(lengths, batch_size=8, seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_lengths_are_grouped_but_not_sorted() -> None:
    lengths = [(row * 37) % 200 + 1 for row in range(400)]
    made = [[lengths[row] for row in batch] for batch in batches(lengths, batch_size=8, seed=3)]
    padded = sum(max(batch) * len(batch) for batch in made)
    assert padded < 1.1 * sum(lengths)  # in arrival order it is about twice as many
    firsts = [batch[0] for batch in made]
    assert firsts != sorted(firsts)


@pytest.mark.parametrize(("layers", "frozen"), [(None, 0), (0, 5), (1, 5 + 16), (2, 5 + 32)])
def test_embeddings_and_lowest_layers_stay_frozen(
    tiny_model: Classifier, layers: int | None, frozen: int
) -> None:
    freeze_lowest(tiny_model, layers)
    still = [name for name, p in tiny_model.named_parameters() if not p.requires_grad]
    assert len(still) == frozen
    assert all(p.requires_grad for p in tiny_model.heads.parameters())
    trained = [
        p for group in parameter_groups(tiny_model, TrainConfig(), 1e-4) for p in group["params"]
    ]
    assert len(trained) + frozen == len(list(tiny_model.parameters()))
