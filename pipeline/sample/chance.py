"""Seeded draws; every one of them goes through a `Random` that the caller hands in."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

T = TypeVar("T")


def happens(rng: Random, rate: float) -> bool:
    """True in `rate` of all cases."""
    return rng.random() < rate


def draw(rng: Random, weights: Mapping[T, float]) -> T:
    """One key, by weight; the weights need not sum to one."""
    return rng.choices(list(weights), weights=list(weights.values()))[0]
