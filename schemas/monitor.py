"""When a night counts as unlike the ones before it, and what is kept of having looked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.manifest import Count, Document, ModelRef
from schemas.section import Fraction, Section

Level = Literal["ok", "watch", "retrain"]
LEVELS: tuple[Level, ...] = ("ok", "watch", "retrain")


class MonitorConfig(Section):
    """What a published night is held against, how far it may be off, and what follows.

    A night is compared with the last `nights` published ones before it, its answers only with
    those of the same model. With fewer than `min_nights` of them, or on a night of fewer than
    `min_rows` rows, nothing is said about shares. Distances are those of Jensen and Shannon with
    base 2, between 0 (the same) and 1 (nothing in common); 200 rows over six labels are about 0.07
    apart by chance. Volume, cost and the like are compared with the median.

    Quality is measured on the outcomes of the last `outcome_nights`, once there are
    `min_outcome_rows`: a macro-F1 whose whole 95 % interval lies more than `max_metric_drop` under
    that of the model's held-out rows asks for a new model, and so do `retrain_after` nights of
    drift in a row (0: drift never does).

    `retrain: true` lets the DAG `monitor` start the DAG `retrain`, whose own approval stands: not
    within `cooldown_days` of the last time for this task, and at most `max_retrains_per_day` of all
    tasks together.
    """

    nights: Annotated[int, Field(ge=1, le=90)] = 7
    min_nights: Annotated[int, Field(ge=1)] = 3
    min_rows: Annotated[int, Field(ge=1)] = 200
    max_volume_factor: Annotated[float, Field(gt=1)] = 2.0
    max_language_distance: Fraction = 0.2
    max_unknown_rise: Fraction = 0.02
    max_answer_distance: Fraction = 0.2
    max_confidence_drop: Fraction = 0.05
    max_review_rise: Fraction = 0.1
    max_quarantine_rise: Fraction = 0.05
    max_cost_factor: Annotated[float, Field(gt=1)] = 2.0
    outcome_nights: Annotated[int, Field(ge=1, le=31)] = 7
    min_outcome_rows: Annotated[int, Field(ge=1)] = 100
    max_metric_drop: Fraction = 0.03
    retrain_after: Annotated[int, Field(ge=0)] = 3
    retrain: bool = False
    cooldown_days: Annotated[int, Field(ge=0)] = 7
    max_retrains_per_day: Annotated[int, Field(ge=1)] = 1


class HeadAnswers(Document):
    """What one head answered on a night: counts by label, and the mean confidence."""

    labels: dict[str, int] = Field(default_factory=dict)
    confidence: float


class NightSummary(Document):
    """What later nights are compared with; no text, no record.

    `languages` counts scored rows. `unknown_share` is that of the validated texts' tokens, None
    where no tokenizer was at hand. `seconds_per_1000_rows` and `cost_per_1000_rows` are None where
    nothing was scored or no price is set.
    """

    date: str
    run: str
    model: ModelRef
    rows_read: Count
    rows_scored: Count
    rows_quarantined: Count
    rows_to_review: Count
    languages: dict[str, int] = Field(default_factory=dict)
    unknown_share: float | None = None
    answers: dict[str, HeadAnswers] = Field(default_factory=dict)
    seconds_per_1000_rows: float | None = None
    cost_per_1000_rows: float | None = None


class Finding(Document):
    """One thing that was looked at: `value` against `limit`, and the sentence that people read.

    `is_drift`: the night is unlike the ones before it, which a new model may mend.
    """

    check: str
    level: Level
    told: str
    value: float | None = None
    limit: float | None = None
    is_drift: bool = False


class MonitorVerdict(Document):
    """What was seen of one date; `against` are the nights it was compared with.

    `night` is None where nothing is published; `changed` are dates whose input is not what was
    scored any more.
    """

    task: str
    date: str
    level: Level
    findings: tuple[Finding, ...] = ()
    against: tuple[str, ...] = ()
    night: NightSummary | None = None
    changed: tuple[str, ...] = ()

    @property
    def drifts(self) -> bool:
        """Whether this night is unlike the ones before it."""
        return any(finding.is_drift and finding.level != "ok" for finding in self.findings)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The sentences of all that is not as it was, the gravest first."""
        found = [finding for finding in self.findings if finding.level != "ok"]
        found.sort(key=lambda finding: -LEVELS.index(finding.level))
        return tuple(finding.told for finding in found)
