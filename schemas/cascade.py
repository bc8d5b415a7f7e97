"""What was measured of a small model before a large one: `cascade.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.manifest import CascadeRef, Document, ModelRef


class CascadeMeasure(Document):
    """Macro-F1 by head on `rows` labelled texts, of each model alone and of both together."""

    rows: Annotated[int, Field(ge=0)]
    share_of_small: float
    small: dict[str, float]
    large: dict[str, float]
    together: dict[str, float]

    @property
    def loss(self) -> float:
        """How far both together are under the large one alone, in the head where it is most."""
        return max(self.large[head] - self.together[head] for head in self.large)


class CascadeSpec(Document):
    """Thresholds for two models, chosen on `valid`; on `test`, where there are texts, nothing was.

    A text is answered by the small model where the confidence of every head reaches its threshold.
    """

    small: ModelRef
    large: ModelRef
    max_metric_loss: float
    thresholds: dict[str, float]
    valid: CascadeMeasure
    test: CascadeMeasure | None = None

    @property
    def ref(self) -> CascadeRef:
        """What of it decides which model answers."""
        return CascadeRef(small=self.small, thresholds=self.thresholds)
