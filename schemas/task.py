"""The typed, frozen configuration of one task: all that is particular to tickets or reviews.

Numbers carry their units in their names. Defaults are the ones a newcomer should have; where a
default has a source, it stands beside it.
"""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from schemas.address import Address
from schemas.distil import DistilConfig
from schemas.fingerprint import digest_of
from schemas.head import HeadConfig, prompt_of
from schemas.labels import LabelSet
from schemas.monitor import MonitorConfig
from schemas.pretrain import PretrainConfig
from schemas.prune import PruneConfig, without_pruned_adapters
from schemas.reasons import Reason
from schemas.schedule import ScheduleConfig
from schemas.score import CacheConfig, CascadeConfig, ScoreConfig, SinkConfig
from schemas.section import Fraction, Section
from schemas.train import LoraConfig, TrainConfig, WindowPooling

__all__ = [
    "CacheConfig",
    "CascadeConfig",
    "HeadConfig",
    "LoraConfig",
    "ScoreConfig",
    "Section",
    "SinkConfig",
    "TrainConfig",
    "WindowPooling",
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
CleanStep = Literal[
    "unicode",
    "controls",
    "html",
    "quoted_mail",
    "markdown",
    "width",
    "homoglyphs",
    "repeats",
    "pii_url",
    "pii_email",
    "pii_iban",
    "pii_card",
    "pii_ip",
    "pii_national_id",
    "pii_phone",
    "special_tokens",
    "whitespace",
]
# Steps that change what a careful writer meant in some kinds of text, so a task asks for them.
OPTIONAL_STEPS: tuple[CleanStep, ...] = (
    "quoted_mail",
    "markdown",
    "homoglyphs",
    "repeats",
    "pii_national_id",
)
DEFAULT_STEPS: tuple[CleanStep, ...] = tuple(
    step for step in get_args(CleanStep) if step not in OPTIONAL_STEPS
)
Severity = Literal["reject", "warn", "stop"]
ColumnType = Literal["string", "integer", "number", "boolean", "date", "timestamp"]
Variant = Literal[
    "int8_static", "int8_dynamic", "int8_blockwise", "int4_blockwise", "fp16", "fp32"
]  # fmt: skip
CalibrationMethod = Literal["minmax", "percentile", "entropy"]
Int8Weights = Literal["signed", "reduced", "unsigned"]


class DataConfig(Section):
    """Where rows come from and which columns matter.

    `incoming` and `outcomes` may hold `{date}` (an ISO date); relative paths start at the home,
    `s3://` and `hf://` addresses are read where they are. `outcomes` are files with the id and the
    heads' columns as people decided them later on. Without `id_column` a record is named by file
    and row. With several text columns the last one is the body that windows slide over; the ones
    before it are joined and repeated in each window.

    `time_column` holds when a record is from, as ISO 8601 or a type of dates: a model's evaluation
    then tells quality by week or month. Labelled rows may do without; scoring does not read it.

    `encoding` is `auto` (byte order mark, else UTF-8 where the bytes are, else a recorded guess)
    or the name of a Python codec. A record over `max_record_bytes` is rejected, the file goes on.
    """

    incoming: Address
    labelled: Address | None = None
    test: Address | None = None
    outcomes: Address | None = None
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"] = "auto"
    encoding: str = "auto"
    max_record_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    id_column: str | None = None
    time_column: str | None = None
    text_columns: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> Self:
        others = (self.id_column, self.time_column)
        names = [*self.text_columns, *(name for name in others if name is not None)]
        if len(set(names)) != len(names):
            raise ValueError(f"a column is named twice in {names}")
        return self

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, encoding: str) -> str:
        if encoding == "auto":
            return encoding
        try:
            return codecs.lookup(encoding).name
        except LookupError:
            raise ValueError("not the name of a text encoding, such as utf-8 or cp1252") from None


class ColumnRule(Section):
    """What the values of one column must satisfy; what is not set is not asked for.

    A missing value only breaks `required`. `unique` holds over the partition: the first row with a
    value keeps it. `max_days_before` and `max_days_after` bound a date or time around the
    partition's date. A row that breaks a rule is rejected, only counted (`warn`), or it stops the
    night before anything is published (`stop`).
    """

    type: ColumnType | None = None
    required: bool = False
    unique: bool = False
    allowed: tuple[str, ...] | None = None
    pattern: str | None = None
    min_chars: Annotated[int, Field(ge=0)] | None = None
    max_chars: Annotated[int, Field(ge=0)] | None = None
    min_value: float | None = None
    max_value: float | None = None
    max_days_before: Annotated[int, Field(ge=0)] | None = None
    max_days_after: Annotated[int, Field(ge=0)] | None = None
    severity: Severity = "reject"

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class LanguageRule(Section):
    """Which languages a text may be in; one that cannot be told (`und`) always may.

    `review` scores a row of another language and sends it to people.
    """

    allowed: Annotated[tuple[str, ...], Field(min_length=1)]
    severity: Literal["reject", "warn", "stop", "review"] = "review"


class DriftRule(Section):
    """How far a partition may be from the last ones before it.

    Volume is compared with the median of the last `partitions` dates that were validated, null
    shares with their mean; below `min_partitions` of them nothing is said.
    """

    partitions: Annotated[int, Field(ge=1)] = 7
    min_partitions: Annotated[int, Field(ge=1)] = 3
    max_volume_factor: Annotated[float, Field(gt=1)] = 2.0
    max_null_share_change: Fraction = 0.1
    severity: Literal["warn", "stop"] = "warn"


class ContractConfig(Section):
    """What a partition must satisfy before the night goes on.

    One row rejected for a reason in `stop_on` stops the night: a file that is cut off has lost an
    unknown number of rows.
    """

    min_rows: Annotated[int, Field(ge=0)] = 1
    max_reject_fraction: Fraction = 0.05
    stop_on: tuple[Reason, ...] = (Reason.TRUNCATED_FILE,)
    min_text_chars: Annotated[int, Field(ge=1)] = 1
    max_text_chars: Annotated[int, Field(ge=1)] = 1_000_000
    columns: dict[str, ColumnRule] = Field(default={})
    languages: LanguageRule | None = None
    drift: DriftRule = DriftRule()

    @property
    def unique_columns(self) -> tuple[str, ...]:
        """Columns whose values may not repeat within a partition, the id not among them."""
        return tuple(name for name, rule in self.columns.items() if rule.unique)


class CleanConfig(Section):
    """Which cleaning steps run; their order is fixed by the cleaner, not by these lists.

    `also` adds steps to `steps`, `without` takes some away. `phone_regions` (`DE`, `US`) lets
    numbers in national form be found; international forms always are. `national_ids` are modules
    of python-stdnum (`us.ssn`, `de.idnr`) for the step `pii_national_id`.
    """

    steps: tuple[CleanStep, ...] = DEFAULT_STEPS
    also: tuple[CleanStep, ...] = ()
    without: tuple[CleanStep, ...] = ()
    phone_regions: tuple[Annotated[str, Field(pattern=r"^[A-Z]{2}$")], ...] = ()
    national_ids: tuple[Annotated[str, Field(pattern=r"^[a-z]{2}\.[a-z0-9_]+$")], ...] = ()
    max_repeats: Annotated[int, Field(ge=1)] = 3

    @property
    def active(self) -> tuple[CleanStep, ...]:
        """The steps that run, in the cleaner's order."""
        chosen = {*self.steps, *self.also} - {*self.without}
        return tuple(step for step in get_args(CleanStep) if step in chosen)


class QuarantineConfig(Section):
    """What quarantine keeps of a rejected row beside its hash: its bytes up to a bound, or none."""

    raw: Literal["bytes", "hash"] = "bytes"
    max_raw_bytes: Annotated[int, Field(ge=0)] = 1 << 20


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


class CompressConfig(Section):
    """Which variants are tried, in order of preference, and what each must pass.

    `calibration` says how the ranges of `int8_static` follow from `calibration_texts` of the task:
    all values (`minmax`), 99.999 % of them, or the range that loses the least information
    (`entropy`). Their number follows what was measured on banking77 (256 keep the accuracy).
    `int8_weights` are `signed`, `reduced` to 7 bits, whose sums never overflow on a CPU without
    VNNI, or `unsigned`. Block-wise variants share a scale between `block_size` weights.

    `prune` makes the encoder smaller before all that.

    `keep_fp32` names parts that stay FP32 (`layers.0.attention`); with `auto`, where a quantized
    variant fails its accuracy gates, they are found by a sweep: the most harmful ones, as few as
    are needed. `sweep` measures every part of the first quantized variant anyway, each on
    `sweep_texts` windows.

    Drops and rises count as far as they are 95 % sure; `max_slice_metric_drop` is for languages of
    30 records or more. `min_speedup` is over fp32 on this host. `verification` is what travels to
    measure a bundle on other hosts: `ids` of validation texts, which can be turned back into these,
    or `synthetic` ones.
    """

    prefer: Annotated[tuple[Variant, ...], Field(min_length=1)] = (
        "int8_static",
        "int8_dynamic",
        "fp32",
    )
    prune: PruneConfig | None = None
    calibration: CalibrationMethod = "minmax"
    calibration_texts: Annotated[int, Field(ge=8)] = 256
    int8_weights: Int8Weights = "signed"
    block_size: Literal[16, 32, 64, 128] = 32
    keep_fp32: Literal["auto"] | tuple[str, ...] | None = None
    sweep: bool = False
    sweep_texts: Annotated[int, Field(ge=8)] = 64
    gate_texts: Annotated[int, Field(ge=8)] = 256
    max_logit_difference_fp32: Annotated[float, Field(gt=0)] = 1e-3
    max_metric_drop: Annotated[float, Field(ge=0)] = 0.01
    max_slice_metric_drop: Annotated[float, Field(ge=0)] = 0.03
    min_label_agreement: Fraction = 0.97
    max_ece_increase: Annotated[float, Field(ge=0)] = 0.03
    max_file_mb: Annotated[float, Field(gt=0)] | None = None
    min_speedup: Annotated[float, Field(gt=0)] | None = None
    verification: Literal["ids", "synthetic"] = "ids"


class TaskConfig(Section):
    """One task: what is predicted for one kind of record, and how."""

    name: Name
    description: str = ""
    data: DataConfig
    contract: ContractConfig = ContractConfig()
    clean: CleanConfig = CleanConfig()
    quarantine: QuarantineConfig = QuarantineConfig()
    heads: Annotated[dict[Name, HeadConfig], Field(min_length=1)]
    window: WindowConfig = WindowConfig()
    train: TrainConfig = TrainConfig()
    pretrain: PretrainConfig = PretrainConfig()
    distil: DistilConfig | None = None
    compress: CompressConfig = CompressConfig()
    score: ScoreConfig = ScoreConfig()
    schedule: ScheduleConfig | None = ScheduleConfig()
    monitor: MonitorConfig = MonitorConfig()

    @field_validator("heads")
    @classmethod
    def _heads_are_sound(cls, heads: dict[str, HeadConfig]) -> dict[str, HeadConfig]:
        for name, head in heads.items():
            LabelSet(name, head.score_names)
        prompt_of(heads)
        return heads

    @property
    def prompt(self) -> str | None:
        """What stands behind each text for the cloze heads; None where there are none."""
        return prompt_of(self.heads)

    _adapters_are_not_pruned = model_validator(mode="after")(without_pruned_adapters)

    @property
    def label_sets(self) -> dict[str, LabelSet]:
        """Names of the scores by head, heads in the order of the file."""
        return {name: LabelSet(name, head.score_names) for name, head in self.heads.items()}

    @property
    def model_uri(self) -> str:
        """The model that scores: `score.model`, or the task's champion."""
        return self.score.model or f"models:/{self.name}@champion"

    @property
    def contract_version(self) -> str:
        """Hash over what decides which rows are rejected: columns, contract and task name."""
        settings = self.model_dump(mode="json", include={"name", "data", "contract"})
        for location in ("incoming", "labelled", "test", "outcomes"):
            del settings["data"][location]
        return digest_of(settings)[:12]

    @property
    def digest(self) -> str:
        """Hash over every setting of the task."""
        return digest_of(self.model_dump(mode="json"))
