"""Two models in a row: a small one answers what it is sure of, the rest goes to the large one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.flow import Prepared
    from pipeline.heads import Answer, HeadSlice
    from pipeline.inference import Inference, Inferred
    from schemas.manifest import CascadeRef


@dataclass(frozen=True)
class Cascade:
    """The small model, its bundle in a local folder, and from which confidence on it is trusted."""

    ref: CascadeRef
    bundle: Path


@dataclass(frozen=True)
class Saving:
    """How a run saves inference: answers kept in the folder `cache`, and a cascade.

    `night` is the date that new answers are kept under, the oldest of which go first.
    """

    cache: Path | None = None
    night: str = ""
    cascade: Cascade | None = None


NO_SAVING = Saving()


class CascadeInference:
    """Inference by two models; each answer says which one gave it.

    The work counted for a text is that of the models that saw it.
    """

    def __init__(
        self, small: Inference, large: Inference, ref: CascadeRef, heads: tuple[HeadSlice, ...]
    ) -> None:
        self._small = small
        self._large = large
        self._ref = ref
        self._heads = heads

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order."""
        inferred = [replace(each, model=self._ref.small) for each in self._small.infer(items)]
        unsure = [
            index
            for index, each in enumerate(inferred)
            if not is_sure(each.answers, self._ref.thresholds, self._heads)
        ]
        if unsure:
            second = self._large.infer([items[index] for index in unsure])
            for index, each in zip(unsure, second, strict=True):
                inferred[index] = _after(inferred[index], each)
        return inferred


def is_sure(
    answers: Mapping[str, Answer], thresholds: Mapping[str, float], heads: tuple[HeadSlice, ...]
) -> bool:
    """Whether every head is sure enough; people are only asked for what the large model gives."""
    return bool(answers) and all(
        not answers[head.name].outside
        and answers[head.name].confidence >= max(thresholds[head.name], head.config.review_below)
        for head in heads
    )


def _after(small: Inferred, large: Inferred) -> Inferred:
    return replace(
        large,
        windows_made=small.windows_made + large.windows_made,
        windows_aggregated=small.windows_aggregated + large.windows_aggregated,
        tokens=small.tokens + large.tokens,
        remembered=small.remembered and large.remembered,
    )
