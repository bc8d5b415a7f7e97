"""How much each part of a model suffers from being quantized: `sweep.json` beside `bundle.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.manifest import Document
from schemas.task import Variant

SWEEP_FILE = "sweep.json"


class SweepRow(Document):
    """One part, measured with it alone quantized and all others FP32.

    `kl` is the mean over texts of KL(FP32 || quantized) in nats, summed over heads; `agreement` the
    share of equal answers and `macro_f1_drop` the loss of macro-F1, each of the head that suffers
    most. `kept` says that the part is FP32 in the variant as it ships.
    """

    name: str
    products: Annotated[int, Field(ge=1)]
    kl: float
    agreement: float
    macro_f1_drop: float
    kept: bool = False


class Sweep(Document):
    """The parts of a variant, the most harmful first, measured on `texts` validation texts."""

    variant: Variant
    texts: Annotated[int, Field(ge=1)]
    rows: tuple[SweepRow, ...]

    def with_kept(self, names: tuple[str, ...]) -> Sweep:
        """The same table with those parts marked as kept in FP32."""
        rows = tuple(row.model_copy(update={"kept": row.name in names}) for row in self.rows)
        return self.model_copy(update={"rows": rows})


class Sweeps(Document):
    """All that were made for a bundle, in the order of `compress.prefer`."""

    sweeps: tuple[Sweep, ...]
