"""What describes a model as we ship it: `bundle.json` beside `model.onnx` and `tokenizer.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.distilled import Distilled
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of
from schemas.manifest import Document
from schemas.scope import ScopeRule
from schemas.task import TaskConfig, Variant

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"  # the weights, where they are too many for MODEL_FILE
TOKENIZER_FILE = "tokenizer.json"
BUNDLE_FILE = "bundle.json"
CARD_FILE = "card.md"
VERIFICATION_FILE = "verification.parquet"


class GateResult(Document):
    """One measured condition; `passed` compares `value` with `threshold` as `rule` says."""

    # A variant that overflows has NaN here, and the bundle of another one must still be readable.
    model_config = ConfigDict(ser_json_inf_nan="strings")

    variant: Variant
    gate: str
    value: float
    rule: str
    threshold: float
    passed: bool

    def __str__(self) -> str:
        """One line for logs and messages."""
        verdict = "passed" if self.passed else "FAILED"
        condition = f"{self.value:.5g} {self.rule} {self.threshold:.5g}"
        return f"{self.variant} {self.gate}: {condition} {verdict}"


class VariantFacts(Document):
    """What a variant weighs and how fast it is on one host: one thread, a window a call.

    `resident_mib` is the most that a process holds which only loads it, in `load_ms`. None where
    not measured.
    """

    megabytes: float
    windows_per_s: float
    p95_ms: float | None = None
    load_ms: float | None = None
    resident_mib: float | None = None


class LanguageMetrics(Document):
    """Quality on the `rows` records of one language; only counted where few say nothing."""

    rows: Annotated[int, Field(ge=0)]
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    macro_f1: float | None = None
    macro_f1_interval: tuple[float, float] | None = None


class HeadMetrics(Document):
    """Quality of one head on `rows` held-out records; intervals are 95 % bootstrap.

    Of a head with a rule for texts that no label fits: the share of the `rows` that it leaves with
    the model, and of `outside_rows` others, known to fit none, the share that it sends to people.
    """

    rows: Annotated[int, Field(ge=0)]
    accuracy: float
    accuracy_interval: tuple[float, float]
    macro_f1: float
    macro_f1_interval: tuple[float, float]
    expected_calibration_error: float
    majority_accuracy: float
    inside_kept: float | None = None
    outside_caught: float | None = None
    outside_rows: Annotated[int, Field(ge=0)] | None = None
    by_lang: dict[str, LanguageMetrics] = Field(default_factory=dict)


class Host(Document):
    """What of a host decides whether quantized scores are trusted there."""

    cpu_features: tuple[str, ...]
    onnxruntime: str


class Export(Document):
    """What wrote the graph and what it became; `operators` are counted as this host runs them.

    `calibration` and `int8_weights` are those of `compress` where the variant depends on them.
    `kept_fp32` are the parts that were left out of quantization.
    """

    opset: int
    ir_version: int
    producer: str
    exporters: dict[str, str]
    operators: dict[str, int]
    calibration: str | None = None
    int8_weights: str | None = None
    kept_fp32: tuple[str, ...] = ()


class BundleSpec(Document):
    """Everything but the weights: labels, thresholds, temperatures, cleaner, digests, gates.

    `near_duplicates` and `conflicting_labels` are what `Finetuned` counts of the training data.
    `baseline_metrics` goes by head, by baseline (`majority`, `tfidf_linear`) and by figure
    (`accuracy`, `macro_f1`, `rows`, `train_rows`), on the records that `metrics` are of. `scopes`
    are the rules by head for texts that no label fits. `facts` are of the `host`, `variant_metrics`
    of the validation records, on which `variant` was chosen for the reason `choice`. `verification`
    is the digest of the file by which other hosts measure the bundle.
    """

    task: TaskConfig
    label_digests: dict[str, str]
    temperatures: dict[str, float]
    scopes: dict[str, ScopeRule] = Field(default_factory=dict)
    cleaner_version: str
    special_tokens: tuple[str, ...]
    variant: Variant
    files: dict[str, str]
    backbone: str
    training_run: str
    data_digest: str
    near_duplicates: dict[str, int] = Field(default_factory=dict)
    conflicting_labels: dict[str, int] = Field(default_factory=dict)
    distilled: Distilled | None = None
    metrics: dict[str, HeadMetrics]
    fp32_metrics: dict[str, HeadMetrics] = Field(default_factory=dict)
    baseline_metrics: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)
    gates: tuple[GateResult, ...]
    host: Host
    choice: str = ""
    facts: dict[Variant, VariantFacts] = Field(default_factory=dict)
    variant_metrics: dict[Variant, dict[str, HeadMetrics]] = Field(default_factory=dict)
    verification: str | None = None
    export: Export | None = None  # bundles made before it was recorded have none

    @property
    def digest(self) -> str:
        """Hash over all that can change a score: weights, tokenizer, labels, text and windows."""
        parts = {
            "files": self.files,
            "labels": self.label_digests,
            "temperatures": self.temperatures,
            "cleaner": self.cleaner_version,
            "window": self.task.window.model_dump(mode="json"),
            "text_columns": list(self.task.data.text_columns),
        }
        # As long as there was no other way a digest did not name it, and those stay what they are.
        if self.task.train.window_pooling != "mean":
            parts["window_pooling"] = self.task.train.window_pooling
        if self.task.prompt is not None:
            parts["prompt"] = self.task.prompt
        if self.scopes:
            parts["scopes"] = {name: rule.identity for name, rule in self.scopes.items()}
        return digest_of(parts)

    def check_fits(self, task: TaskConfig) -> None:
        """Makes sure that this model answers the questions the task asks, in the same label order.

        Raises:
            ArtifactError: heads, their kinds, labels or label order, or the text steps differ.
        """
        if list(self.label_digests) != list(task.heads):
            raise ArtifactError(
                f"the model has heads {list(self.label_digests)}, task {task.name!r} has "
                f"{list(task.heads)}; train again, or restore the task file's heads"
            )
        for name, labels in task.label_sets.items():
            mine, theirs = self.task.heads[name].kind, task.heads[name].kind
            if mine != theirs:
                raise ArtifactError(
                    f"head {name!r}: the model has kind {mine!r}, task {task.name!r} has "
                    f"{theirs!r}; train again, or restore the task file's head"
                )
            if self.label_digests[name] != labels.digest:
                raise ArtifactError(
                    f"head {name!r}: labels of the model and of task {task.name!r} differ in name "
                    f"or order; train again, or restore the task file's labels"
                )
        for section in ("clean", "window"):
            if getattr(self.task, section) != getattr(task, section):
                raise ArtifactError(
                    f"section {section!r} of task {task.name!r} is not what the model was trained "
                    f"with; train again, or restore it"
                )
        if self.task.data.text_columns != task.data.text_columns:
            raise ArtifactError(
                f"the model reads columns {list(self.task.data.text_columns)}, task "
                f"{task.name!r} has {list(task.data.text_columns)}; train again, or restore them"
            )
