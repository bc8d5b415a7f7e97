"""How a cut model learns again: the recipe of fine-tuning, shorter and slower."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.model.recipe import choose_recipe

if TYPE_CHECKING:
    from pipeline.model.recipe import Recipe
    from schemas.prune import PruneConfig
    from schemas.task import TrainConfig

# The model is near its optimum, so that the full rate would throw it out again.
_OF_THE_RATE = 0.5


def recovery_config(train: TrainConfig) -> TrainConfig:
    """The settings of fine-tuning with all weights trained: each of them lost a neighbour.

    A rate that was set for low-rank updates is too high for whole weights and is forgotten.
    """
    changes: dict[str, Any] = {"lora": None, "frozen_layers": None, "domain_adversarial": None}
    if train.lora is not None:
        changes["learning_rate"] = None
    return train.model_copy(update=changes)


def recovery_recipe(
    train: TrainConfig,
    prune: PruneConfig,
    *,
    n_train: int,
    hidden_size: int,
    computes_in_bf16: bool = False,
) -> Recipe:
    """The recipe of `recovery_config`, with fewer epochs and lower rates."""
    recipe = choose_recipe(
        train, n_train=n_train, hidden_size=hidden_size, computes_in_bf16=computes_in_bf16
    )
    rate = prune.recovery_learning_rate or recipe.learning_rate * _OF_THE_RATE
    return replace(
        recipe,
        epochs=prune.recovery_epochs,
        learning_rate=rate,
        head_learning_rate=recipe.head_learning_rate * rate / recipe.learning_rate,
        why=f"recovery from pruning, {recipe.why}",
    )
