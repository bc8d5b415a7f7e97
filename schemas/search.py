"""Which recipes a training run tries before it trains."""

from __future__ import annotations

from typing import Annotated, Generic, Self, TypeVar

from pydantic import Field, model_validator

from schemas.section import Fraction, Section

Positive = Annotated[float, Field(gt=0)]
Size = Annotated[int, Field(ge=1)]
Decay = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
T = TypeVar("T", int, float)


class Values(Section, Generic[T]):
    """What a setting may be: one of three ways to say it.

    `among` these, anything `between` two bounds, or what a run without a search would take `times`
    anything between two factors.
    """

    among: Annotated[tuple[T, ...], Field(min_length=1)] | None = None
    between: tuple[T, T] | None = None
    times: tuple[Positive, Positive] | None = None

    @model_validator(mode="after")
    def _one_way_with_low_before_high(self) -> Self:
        ways = [self.among, self.between, self.times]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("say exactly one of among, between and times")
        for low, high in filter(None, (self.between, self.times)):
            if low > high:
                raise ValueError(f"the lower bound {low:g} comes first, then {high:g}")
        return self


class SearchConfig(Section):
    """Recipes tried on the training records and judged by validation macro-F1, then one is taken.

    Of `trials` the first is what the run would do without a search. The others draw the settings
    below by `train.seed`; null leaves one out, and what `train` itself says is not searched.

    After `min_epochs` (null is a third of all) a trial goes on if it is among the best
    `1 / reduction_factor` of those that came as far, and is asked again whenever it has trained
    `reduction_factor` times as long (ASHA, Li et al. 2020).

    `concurrent` trials share the CPUs; null is one for every eight of them, at least one. With one
    at a time the same seed stops the same trials. `sample_fraction` is how much of the training
    records a trial sees; the run then trains on all.

    `distil_alpha` and `distil_temperature` are those of `distil`, whose teachers are asked once for
    all trials.
    """

    trials: Annotated[int, Field(ge=2)] = 8
    min_epochs: Annotated[int, Field(ge=1)] | None = None
    reduction_factor: Annotated[float, Field(gt=1)] = 3.0
    concurrent: Annotated[int, Field(ge=1)] | None = None
    sample_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    learning_rate: Values[Positive] | None = Values(times=(1 / 3, 3.0))
    head_learning_rate: Values[Positive] | None = Values(times=(1 / 3, 3.0))
    batch_size: Values[Size] | None = Values(times=(0.5, 2.0))
    layer_decay: Values[Decay] | None = Values(between=(0.8, 1.0))
    label_smoothing: Values[Share] | None = Values(between=(0.0, 0.1))
    dropout: Values[Share] | None = Values(between=(0.05, 0.2))
    distil_alpha: Values[Fraction] | None = None
    distil_temperature: Values[Positive] | None = None
