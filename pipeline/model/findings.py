"""What a diagnosis is made of: findings, and the facts about the data that some of them need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from schemas.manifest import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal[
    "loss_not_finite",
    "loss_spike",
    "plateau",
    "overfitting",
    "one_class_collapse",
    "label_never_predicted",
    "gradient_explosion",
    "gradient_vanishing",
    "learning_rate_too_high",
    "learning_rate_too_low",
    "batch_noise",
    "leakage",
    "label_errors",
    "unknown_words",
]
# A problem makes the model unfit for use; a warning is worth a look and may be as it should.
Severity = Literal["problem", "warning"]
NO_FINDING = "none"


class Finding(Document):
    """One thing that a run shows: `evidence` has the numbers, `advice` names config keys."""

    kind: Kind
    severity: Severity
    evidence: str
    advice: str

    def __str__(self) -> str:
        """One line for the log."""
        return f"{self.kind}: {self.evidence}; {self.advice}"


class Diagnosis(Document):
    """`diagnosis.json`: what was found in a run, in the order in which it was looked for.

    `label_errors` counts the records of each head whose label is suspected, `judged` those that
    were looked at; `agreement` is the share of them whose label the judge gives as well.
    """

    findings: tuple[Finding, ...] = ()
    label_errors: dict[str, int] = Field(default_factory=dict)
    judged: dict[str, int] = Field(default_factory=dict)
    agreement: dict[str, float] = Field(default_factory=dict)

    @property
    def tag(self) -> str:
        """Kinds, comma separated and each once, or `none`: what a search in MLflow looks for."""
        return ",".join(dict.fromkeys(found.kind for found in self.findings)) or NO_FINDING


@dataclass(frozen=True)
class DataFacts:
    """What is known of the labelled rows behind a run.

    `rows` goes by split, `near_duplicates` by pair of splits (`train-test`); `unknown` is the
    share of the training texts' tokens that the backbone's vocabulary cannot spell; the others go
    by head as in `Diagnosis`.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    near_duplicates: Mapping[str, int] = field(default_factory=dict)
    label_errors: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    agreement: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.0
