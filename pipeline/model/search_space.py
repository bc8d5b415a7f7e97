"""Which recipes a search tries, and on which records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from scipy.stats import qmc

from schemas.distil import DistilConfig
from schemas.errors import ConfigError
from schemas.fingerprint import digest_of
from schemas.train import TrainConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.labelled import Example
    from pipeline.model.recipe import Recipe
    from schemas.search import SearchConfig, Values
    from schemas.searched import Settings
    from schemas.task import TaskConfig

SEARCHABLE = (
    "learning_rate", "head_learning_rate", "batch_size", "layer_decay", "label_smoothing",
    "dropout", "distil_alpha", "distil_temperature",
)  # fmt: skip
_OF_DISTIL = {"distil_alpha": "alpha", "distil_temperature": "temperature"}
_CHOSEN_BY_RECIPE = ("learning_rate", "head_learning_rate", "batch_size")
# Twice as high is as far as half as high: even steps of the logarithm.
_BY_RATIO = frozenset((*_CHOSEN_BY_RECIPE, "distil_temperature"))
_DIGITS = 3  # significant ones of a drawn number; more make no other model, only longer tables
# Points drawn for each trial that is wanted: few choices give the same recipe again and again.
_POINTS_PER_TRIAL = 20


def searched_keys(
    config: TrainConfig, search: SearchConfig, *, distil: DistilConfig | None = None
) -> tuple[list[str], list[str]]:
    """Settings that are searched, and those that are not because the task file says them."""
    wanted = [key for key in SEARCHABLE if getattr(search, key) is not None]
    # A null in the file says no more than a missing line.
    said = {key for key in config.model_fields_set if getattr(config, key) is not None}
    if distil is not None:
        said |= {key for key, field in _OF_DISTIL.items() if field in distil.model_fields_set}
    return [key for key in wanted if key not in said], [key for key in wanted if key in said]


def setting_path(key: str) -> str:
    """Where a searched setting stands in the task: `train.dropout`, `distil.alpha`."""
    return f"distil.{_OF_DISTIL[key]}" if key in _OF_DISTIL else f"train.{key}"


def draw_trials(
    config: TrainConfig,
    search: SearchConfig,
    recipe: Recipe,
    *,
    distil: DistilConfig | None = None,
) -> list[Settings]:
    """Settings of each trial, all different; the first are those of `recipe` and `config`.

    A scrambled Halton sequence (Owen 2017) covers each setting more evenly than chance does, and
    a search of more trials begins with those of a shorter one. There may be fewer trials than
    asked for, where the values do not give so many.

    Raises:
        ConfigError: there is nothing to search, or settings that do not go together.
    """
    keys, said = searched_keys(config, search, distil=distil)
    if taught := [key for key in keys if key in _OF_DISTIL and distil is None]:
        raise ConfigError(
            f"train.search.{taught[0]} is about teachers, but distil is not set: name one in "
            f"distil.teacher, or leave it out"
        )
    if not keys:
        raise ConfigError(
            f"train.search has nothing to search: the task file says {', '.join(said) or 'none'} "
            f"and leaves out the rest; take a line out of train, or train.search with its trials"
        )
    base: Settings = {key: _unsearched(key, config, recipe, distil) for key in keys}
    found = [base]
    sequence = qmc.Halton(len(keys), scramble=True, rng=abs(config.seed))
    for point in sequence.random(search.trials * _POINTS_PER_TRIAL).tolist():
        drawn = {
            key: _value(key, getattr(search, key), place, base[key])
            for key, place in zip(keys, point, strict=True)
        }
        if drawn not in found:
            found.append(drawn)
        if len(found) == search.trials:
            break
    for settings in found:
        with_settings(config, _of_train(settings))
        taught_with(distil, settings)
    return found


def with_settings(config: TrainConfig, settings: Settings) -> TrainConfig:
    """`config` with a trial's settings in effect.

    Raises:
        ConfigError: they are out of range, or do not go together with the rest.
    """
    try:
        return TrainConfig.model_validate(config.model_dump() | settings)
    except ValidationError as error:
        raise _not_to_be_tried(settings, error) from None


def taught_with(config: DistilConfig | None, settings: Settings) -> DistilConfig | None:
    """`config` with what a trial's settings say of teachers in effect; None stays None.

    Raises:
        ConfigError: they do not go together with the rest.
    """
    changes = {_OF_DISTIL[key]: value for key, value in settings.items() if key in _OF_DISTIL}
    if config is None or not changes:
        return config
    try:
        return DistilConfig.model_validate(config.model_dump() | changes)
    except ValidationError as error:
        raise _not_to_be_tried(settings, error) from None


def _of_train(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key not in _OF_DISTIL}


def _not_to_be_tried(settings: Settings, error: ValidationError) -> ConfigError:
    why = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
    return ConfigError(f"train.search: {settings} cannot be tried: {why}")


def task_with(task: TaskConfig, settings: Settings) -> TaskConfig:
    """The task with what a search chose in effect; the same task where it chose nothing.

    Raises:
        ConfigError: see `with_settings` and `taught_with`.
    """
    if not settings:
        return task
    changed = {
        "train": with_settings(task.train, _of_train(settings)),
        "distil": taught_with(task.distil, settings),
    }
    return task.model_copy(update=changed)


def sampled(train: Sequence[Example], share: float, *, seed: int) -> list[Example]:
    """A share of the records in their order, the same for the same seed; texts decide."""
    if share >= 1:
        return list(train)
    drawn = [(digest_of([seed, example.text_hash]), row) for row, example in enumerate(train)]
    chosen = sorted(drawn)[: math.ceil(len(train) * share)]
    return [train[row] for row in sorted(row for _, row in chosen)]


def _unsearched(
    key: str, config: TrainConfig, recipe: Recipe, distil: DistilConfig | None
) -> int | float:
    owner: Any = recipe if key in _CHOSEN_BY_RECIPE else distil if key in _OF_DISTIL else config
    value: int | float = getattr(owner, _OF_DISTIL.get(key, key))
    return value


def _value(key: str, values: Values[Any], place: float, base: float) -> int | float:
    """The value at `place` between 0 and 1 of what a setting may be."""
    if values.among is not None:
        value: int | float = values.among[int(place * len(values.among))]
        return value
    low, high = values.between or [base * factor for factor in values.times or (1.0, 1.0)]
    drawn = low * (high / low) ** place if key in _BY_RATIO else low + (high - low) * place
    if key == "batch_size":
        return max(1, round(drawn))
    return min(max(float(f"{drawn:.{_DIGITS}g}"), low), high)
