"""What a task asks of a text: heads, their labels, and how scores and answers are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.cloze import ClozeConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_POLARITY = "none"  # what an aspect that a text does not speak of is answered with


# No subclasses of `schemas.task.Section`: the task's file imports this one.
class KnnConfig(BaseModel):
    """How like a text is to training texts: the cosine to the `neighbours`-th most like of them.

    It is compared with windows of training texts that a label fits, at most `texts` of them, drawn
    by `train.seed` (Sun et al. 2022, arXiv 2204.06507, who find few neighbours and a small sample
    enough). Their vectors are part of the model file, `texts` times the encoder's width times
    4 bytes, and are there only if this score tells texts outside better than the other two.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    texts: Annotated[int, Field(ge=1, le=20_000)] = 1000
    neighbours: Annotated[int, Field(ge=1)] = 5

    @model_validator(mode="after")
    def _neighbours_are_among_the_texts(self) -> Self:
        if self.neighbours > self.texts:
            raise ValueError(
                f"neighbours {self.neighbours} are more than the {self.texts} texts: lower them"
            )
        return self


class OutsideConfig(BaseModel):
    """Texts that none of a head's labels fits go to people, whatever the answer's confidence.

    `labels` are the values of the head's column that mean none of these, such as `oos`; without
    them no such text is known, and what fits is learnt from the others alone. At least the share
    `keep` of the texts that a label fits stays with the model. `knn` tries a third score beside the
    maximum probability and the energy; which one is better is seen on texts of `labels` alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: tuple[str, ...] = ()
    keep: Annotated[float, Field(gt=0, le=1)] = 0.95
    knn: KnnConfig | None = None

    @model_validator(mode="after")
    def _knn_can_be_judged(self) -> Self:
        if self.knn is not None and not self.labels:
            raise ValueError(
                "knn is chosen by how it tells texts of the outside labels from others: name such "
                "labels, or remove knn"
            )
        return self

    @model_validator(mode="after")
    def _labels_can_be_met(self) -> Self:
        for label in self.labels:
            if not label or label != label.strip():
                raise ValueError(
                    f"outside label {label!r} is blank or has white space around it, which no "
                    f"value has by the time it is compared: remove it"
                )
        return self


class HeadConfig(BaseModel):
    """One question the task answers: `single` is one of n labels, `multi` any of n.

    `aspect` asks of each of the `aspects` which of the labels it has, or none: a text may be
    `positive` of the food and `negative` of the service. Its answer is a list such as
    `[food:positive, service:negative]`.

    A `multi` column holds a list, or text split at `separator`. An `aspect` column holds an object
    `{"food": "positive"}`, a list of such pairs, or text split at `separator` into parts split at
    `pair_separator`; an aspect not named has none, `{}` names none at all, and an empty cell says
    that nothing is known. An answer whose confidence is under `review_below` goes to people, and of
    a `single` head with `outside` that to a text which no label fits.

    `cloze` has a `single` head answer by the backbone's masked-language head; see `ClozeConfig`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["single", "multi", "aspect"] = "single"
    column: str
    labels: tuple[str, ...]
    aspects: tuple[str, ...] = ()
    separator: str = "|"
    pair_separator: Annotated[str, Field(min_length=1)] = ":"
    loss_weight: Annotated[float, Field(gt=0)] = 1.0
    review_below: Annotated[float, Field(ge=0, le=1)] = 0.5
    outside: OutsideConfig | None = None
    cloze: ClozeConfig | None = None

    @model_validator(mode="after")
    def _aspects_suit_the_kind(self) -> Self:
        if bool(self.aspects) != (self.kind == "aspect"):
            needs = "needs" if self.kind == "aspect" else "takes no"
            raise ValueError(f"a head of kind {self.kind!r} {needs} aspects")
        for what, names in (("aspect", self.aspects), ("label", self.labels)):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if self.kind == "aspect" and repeated:
                raise ValueError(f"repeated {what} {repeated[0]!r}")
        if self.kind == "aspect" and (not self.labels or NO_POLARITY in self.labels):
            raise ValueError(
                f"labels of a head of kind 'aspect' are what an aspect may have, and "
                f"{NO_POLARITY!r} is not one of them: it is what all others have"
            )
        return self

    @model_validator(mode="after")
    def _outside_suits_the_head(self) -> Self:
        if self.outside is None:
            return self
        if self.kind != "single":
            raise ValueError(
                f"a head of kind {self.kind!r} takes no outside: a text that none of its labels "
                f"fits has an answer already, the empty one"
            )
        if both := sorted({*self.outside.labels} & {*self.labels}):
            raise ValueError(
                f"{both[0]!r} is one of the head's labels and of outside too: remove one of both"
            )
        return self

    @model_validator(mode="after")
    def _cloze_suits_the_head(self) -> Self:
        if self.cloze is None:
            return self
        if self.kind != "single":
            raise ValueError(
                f"a head of kind {self.kind!r} takes no cloze: one gap is filled with one label"
            )
        self.cloze.check_labels(self.labels)
        return self

    @property
    def score_names(self) -> tuple[str, ...]:
        """What each score of the head stands for, in the order of its logits.

        Of an `aspect` head `food:none`, `food:positive` and so on, aspect after aspect.
        """
        if self.kind != "aspect":
            return self.labels
        choices = (NO_POLARITY, *self.labels)
        return tuple(f"{aspect}:{choice}" for aspect in self.aspects for choice in choices)

    @property
    def n_scores(self) -> int:
        """How many scores, and logits, the head has."""
        return len(self.aspects) * (len(self.labels) + 1) if self.aspects else len(self.labels)

    @property
    def answer_labels(self) -> tuple[str, ...]:
        """The labels that an answer may hold, in order: of an `aspect` head `food:positive`."""
        if self.kind != "aspect":
            return self.labels
        return tuple(f"{aspect}:{label}" for aspect in self.aspects for label in self.labels)


def prompt_of(heads: Mapping[str, HeadConfig]) -> str | None:
    """What stands behind each text for the cloze heads among `heads`; None where there are none.

    Raises:
        ValueError: they have different prompts.
    """
    prompts = {name: head.cloze.prompt for name, head in heads.items() if head.cloze}
    if len({*prompts.values()}) > 1:
        raise ValueError(
            f"cloze heads {list(prompts)} have different prompts, but a text is read once: give "
            f"them the same one, with words of their own, or make a task of each"
        )
    return next(iter(prompts.values()), None)
