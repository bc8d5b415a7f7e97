"""Which recipes a search draws: evenly, by seed, within bounds, and never what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.recipe import Recipe
from pipeline.model.search_space import (
    draw_trials,
    sampled,
    searched_keys,
    setting_path,
    task_with,
    with_settings,
)
from schemas.distil import DistilConfig
from schemas.errors import ConfigError
from schemas.search import SearchConfig
from schemas.train import TrainConfig

if TYPE_CHECKING:
    from pipeline.model.labelled import Example
    from schemas.searched import Settings
    from schemas.task import TaskConfig

RECIPE = Recipe(6, 2e-4, "a test", batch_size=32, head_learning_rate=1e-3)
BOUNDS = {
    "learning_rate": (2e-4 / 3, 6e-4),
    "head_learning_rate": (1e-3 / 3, 3e-3),
    "batch_size": (16, 64),
    "layer_decay": (0.8, 1.0),
    "label_smoothing": (0.0, 0.1),
    "dropout": (0.05, 0.2),
}


def draw(search: dict[str, Any] | None = None, **train: Any) -> list[Settings]:
    config = TrainConfig.model_validate({"search": search or {}} | train)
    assert config.search is not None
    return draw_trials(config, config.search, RECIPE)


def test_the_first_trial_is_the_recipe_and_the_others_lie_around_it() -> None:
    trials = draw({"trials": 40})
    assert trials[0] == {
        "learning_rate": 2e-4, "head_learning_rate": 1e-3, "batch_size": 32, "layer_decay": 0.95,
        "label_smoothing": 0.0, "dropout": 0.1,
    }  # fmt: skip
    assert len(trials) == 40
    for key, (low, high) in BOUNDS.items():
        values = [trial[key] for trial in trials]
        assert low <= min(values) < max(values) <= high
    rates = [trial["learning_rate"] for trial in trials[1:]]
    assert 0.4 < sum(rate < 2e-4 for rate in rates) / len(rates) < 0.6  # even by ratio
    assert all(isinstance(trial["batch_size"], int) for trial in trials)


def test_the_same_seed_draws_the_same_and_more_trials_begin_with_fewer() -> None:
    assert draw() == draw()
    assert len(draw()) == 8
    assert draw(seed=14)[1:] != draw()[1:]
    assert draw({"trials": 5}) == draw()[:5]


def test_what_the_task_file_says_is_left_as_it_is() -> None:
    config = TrainConfig.model_validate(
        {
            "search": {"dropout": None},
            "learning_rate": 1e-4,
            "layer_decay": 0.95,
            "batch_size": None,
        }
    )
    assert config.search is not None
    searched, said = searched_keys(config, config.search)
    assert searched == ["head_learning_rate", "batch_size", "label_smoothing"]
    assert said == ["learning_rate", "layer_decay"]
    assert set(draw_trials(config, config.search, RECIPE)[1]) == set(searched)


def test_values_may_be_said_in_three_ways() -> None:
    trials = draw(
        {
            "trials": 30,
            "learning_rate": {"between": [1e-5, 1e-5]},
            "head_learning_rate": {"times": [2, 4]},
            "batch_size": {"among": [8, 24]},
            "layer_decay": None,
            "label_smoothing": None,
            "dropout": None,
        }
    )
    assert {trial["learning_rate"] for trial in trials[1:]} == {1e-5}
    assert {trial["batch_size"] for trial in trials[1:]} == {8, 24}
    assert all(2e-3 <= trial["head_learning_rate"] <= 4e-3 for trial in trials[1:])


def test_trials_that_would_be_equal_are_made_once() -> None:
    only = dict.fromkeys(BOUNDS) | {"batch_size": {"among": [8, 32]}}
    assert draw({"trials": 10} | only) == [{"batch_size": 32}, {"batch_size": 8}]


def test_nothing_to_search_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the task file says dropout and leaves out the rest"):
        draw(dict.fromkeys(set(BOUNDS) - {"dropout"}), dropout=0.1)


def test_settings_that_do_not_go_together_are_told_before_any_trial() -> None:
    with pytest.raises(ConfigError, match="cannot be tried: r_drop_alpha compares passes"):
        draw({"dropout": {"among": [0.0]}}, r_drop_alpha=1.0)


def test_settings_come_into_effect_and_the_rest_stays(tiny_task: TaskConfig) -> None:
    changed = task_with(tiny_task, {"learning_rate": 3e-4, "batch_size": 12})
    assert (changed.train.learning_rate, changed.train.batch_size) == (3e-4, 12)
    expected = tiny_task.train.model_dump() | {"learning_rate": 3e-4, "batch_size": 12}
    assert changed.train.model_dump() == expected
    assert changed.heads == tiny_task.heads
    assert task_with(tiny_task, {}) is tiny_task
    with pytest.raises(ConfigError, match=r"train\.search: .* cannot be tried"):
        with_settings(tiny_task.train, {"layer_decay": 2.0})


def test_how_much_teachers_count_is_searched_where_it_is_not_said(tiny_task: TaskConfig) -> None:
    distil = DistilConfig(teacher=("run:big",), temperature=3.0)
    asked = dict.fromkeys(BOUNDS) | {
        "distil_alpha": {"between": [0.4, 1.0]}, "distil_temperature": {"among": [1.0, 4.0]},
    }  # fmt: skip
    config = TrainConfig.model_validate({"search": asked})
    assert config.search is not None
    assert searched_keys(config, config.search, distil=distil) == (
        ["distil_alpha"], ["distil_temperature"]
    )  # fmt: skip
    trials = draw_trials(config, config.search, RECIPE, distil=distil)
    assert trials[0] == {"distil_alpha": 0.5}
    assert all(0.4 <= trial["distil_alpha"] <= 1.0 for trial in trials)
    found = task_with(tiny_task.model_copy(update={"distil": distil}), {"distil_alpha": 0.9})
    assert found.distil is not None
    assert (found.distil.alpha, found.distil.temperature) == (0.9, 3.0)
    assert found.train == tiny_task.train
    assert setting_path("distil_alpha") == "distil.alpha"
    assert setting_path("dropout") == "train.dropout"
    with pytest.raises(ConfigError, match=r"train\.search\.distil_alpha is about teachers, but"):
        draw(asked)


def test_a_share_that_leaves_teachers_nothing_to_say_is_told_before_any_trial() -> None:
    distil = DistilConfig(teacher=("run:big",), unlabelled="more/*.jsonl")
    asked = dict.fromkeys(BOUNDS) | {"distil_alpha": {"among": [0.0]}}
    config = TrainConfig.model_validate({"search": asked})
    assert config.search is not None
    with pytest.raises(ConfigError, match="cannot be tried: alpha is 0"):
        draw_trials(config, config.search, RECIPE, distil=distil)


def test_a_share_of_the_records_keeps_their_order(toy_examples: list[Example]) -> None:
    some = sampled(toy_examples, 0.25, seed=1)
    assert len(some) == 60
    assert [each for each in toy_examples if each in some] == some
    assert sampled(list(reversed(toy_examples)), 0.25, seed=1) == list(reversed(some))
    assert sampled(toy_examples, 0.25, seed=2) != some
    assert sampled(toy_examples, 1.0, seed=1) == toy_examples
    assert len(sampled(toy_examples[:3], 0.01, seed=1)) == 1


def test_defaults_are_few_trials_on_all_records() -> None:
    search = SearchConfig()
    assert (search.trials, search.sample_fraction, search.concurrent) == (8, 1.0, None)
