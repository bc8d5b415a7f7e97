"""How a student learns from teachers, beside or in place of labels."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from schemas.section import Fraction, Section

TeacherAddress = Annotated[
    str, Field(pattern=r"^(run:([^/]+/)?[^/]+|models:/[^/@]+(@[^/@]+|/\d+)|path:.+)$")
]
Layer = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0)]


class StudentConfig(Section):
    """A student made of some `layers`, counted from 0, of the teacher or of `train.backbone`.

    It starts with their weights and embeddings, and with the teacher's heads where it is made of
    the teacher (Sanh et al. 2019 take every second layer).
    """

    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    of: Literal["teacher", "backbone"] = "teacher"

    @model_validator(mode="after")
    def _layers_ascend(self) -> Self:
        if list(self.layers) != sorted({*self.layers}):
            raise ValueError(f"layers {list(self.layers)} must ascend, each named once")
        return self


class HiddenConfig(Section):
    """Hidden states that should be like the teacher's (Jiao et al. 2020, TinyBERT), by `weight`.

    `pairs` are layers of student and teacher, 0 the embeddings; null spreads the student's evenly
    over the teacher's. Where widths differ a projection is learnt, which does not ship.
    """

    weight: Weight = 1.0
    pairs: Annotated[tuple[tuple[Layer, Layer], ...], Field(min_length=1)] | None = None


class RelationsConfig(Section):
    """How tokens relate in one layer should be like the teacher's (Wang et al. 2021, MiniLMv2).

    It is queries to queries, keys to keys and values to values, of the student's last layer and
    `teacher_layer`, from 0, null for the last. They are cut into `heads` parts, which must divide
    both widths; null takes the most that divide both and the teacher's attention heads.
    """

    weight: Weight = 1.0
    teacher_layer: Layer | None = None
    heads: Annotated[int, Field(ge=1)] | None = None


class AugmentConfig(Section):
    """`copies` of each training text, changed at random, which the teacher answers anew.

    Each word is left out with the chance `word_drop` (Wei & Zou 2019), and so large a share of the
    words as `span_swap` is in neighbouring spans that change places.
    """

    copies: Annotated[int, Field(ge=1, le=20)] = 1
    word_drop: Annotated[float, Field(ge=0, lt=1)] = 0.1
    span_swap: Fraction = 0.1


class DistilConfig(Section):
    """A student trained from one or more teachers; the student is what `train` describes.

    A `teacher` is `run:NAME` or `run:TASK/NAME`, a training run in this home, or a bundle:
    `models:/NAME@ALIAS`, `models:/NAME/VERSION`, `path:DIR`. What several say is averaged as
    `ensemble` says.

    The loss is `alpha` T^2 KL(teacher || student) + (1 - `alpha`) times that of the labels, both
    sides' logits divided by T, the `temperature` (Hinton et al. 2015). With `alpha` 1 labels only
    choose the best epoch, with 0 there is no such term.

    `unlabelled` is an address as `data.incoming` is, of all dates, from which at most
    `max_unlabelled` texts are taken. `hidden` and `relations` follow the first teacher, which must
    have the student's tokenizer and its weights in this home.
    """

    teacher: Annotated[tuple[TeacherAddress, ...], Field(min_length=1)]
    ensemble: Literal["probabilities", "logits"] = "probabilities"
    alpha: Fraction = 0.5
    temperature: Annotated[float, Field(gt=0)] = 2.0
    student: StudentConfig | None = None
    hidden: HiddenConfig | None = None
    relations: RelationsConfig | None = None
    unlabelled: str | None = None
    max_unlabelled: Annotated[int, Field(ge=1)] = 50_000
    augment: AugmentConfig | None = None

    @field_validator("teacher", mode="before")
    @classmethod
    def _one_is_a_list(cls, teacher: Any) -> Any:
        return (teacher,) if isinstance(teacher, str) else teacher

    @model_validator(mode="after")
    def _something_is_taught(self) -> Self:
        has_more = self.unlabelled is not None or self.augment is not None
        if has_more and self.alpha == 0 and not self.follows_layers:
            raise ValueError(
                "alpha is 0, so that nothing is asked of unlabelled or augmented texts: "
                "raise alpha or leave them out"
            )
        return self

    @property
    def follows_layers(self) -> bool:
        """Whether the teacher reads every batch beside the student."""
        return self.hidden is not None or self.relations is not None
