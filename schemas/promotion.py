"""Decisions about models: who made which version the champion, when, why, and on what evidence."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from schemas.bundle import BundleSpec, GateResult
from schemas.manifest import Document
from schemas.task import Variant

if TYPE_CHECKING:
    from collections.abc import Iterable

Action = Literal["promoted", "rejected", "rolled back"]


class HeadRecord(Document):
    """Quality of one head on `rows` held-out records; intervals are 95 % bootstrap."""

    rows: int
    accuracy: float
    accuracy_interval: tuple[float, float]
    macro_f1: float
    macro_f1_interval: tuple[float, float]
    expected_calibration_error: float


class EvidenceRecord(Document):
    """What was known of a version when it was decided on.

    `gates` are those of the variant that ships. `code` is the digest of the code that registered
    it, empty for versions from before it was kept.
    """

    variant: Variant
    training_run: str
    data_digest: str
    code: str = ""
    teachers: tuple[str, ...] = ()
    heads: dict[str, HeadRecord] = Field(default_factory=dict)
    gates: tuple[GateResult, ...] = ()

    @classmethod
    def of(cls, spec: BundleSpec, *, code: str = "") -> Self:
        """The evidence in a bundle's own description."""
        wanted = set(HeadRecord.model_fields)
        return cls(
            variant=spec.variant,
            training_run=spec.training_run,
            data_digest=spec.data_digest,
            code=code,
            teachers=tuple(map(str, spec.distilled.teachers)) if spec.distilled else (),
            heads={
                name: HeadRecord.model_validate(metrics.model_dump(include=wanted))
                for name, metrics in spec.metrics.items()
            },
            gates=tuple(gate for gate in spec.gates if gate.variant == spec.variant),
        )

    @property
    def gates_passed(self) -> str:
        """How many of the gates passed, for people."""
        passed = sum(gate.passed for gate in self.gates)
        return f"{passed} of {len(self.gates)}" if self.gates else "none was measured"


class Decision(Document):
    """One line of the promotion history.

    `before` is the champion's version when it was decided, None where there was none. `evidence`
    is None where the model's files could not be read.
    """

    model: str
    version: str
    digest: str
    action: Action
    before: str | None
    approver: str
    reason: str
    at: datetime
    evidence: EvidenceRecord | None = None

    @property
    def makes_champion(self) -> bool:
        """Whether `version` is the champion from here on."""
        return self.action != "rejected"


def champions_between(
    decisions: Iterable[Decision], start: datetime, end: datetime
) -> tuple[Decision, ...]:
    """The decisions that say who was champion from `start` until before `end`, oldest first.

    The first one may be older than `start`: it was in force by then. Empty where the history begins
    later. Where `end` is `start`, it is the one in force at that moment.
    """
    changes = sorted((d for d in decisions if d.makes_champion), key=lambda decision: decision.at)
    older = [decision for decision in changes if decision.at <= start]
    return (*older[-1:], *(decision for decision in changes if start < decision.at < end))
