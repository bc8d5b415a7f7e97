"""What a person sees before a new model takes the champion's place.

It travels from the job `bundle` to the approval, through Airflow's database, and so its size is
bounded; the whole of it lies in the run's folder.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from schemas.bundle import GateResult
from schemas.manifest import Count, Document
from schemas.paired import Interval, PairedResult
from schemas.task import Variant

# Airflow's operator takes 16 KiB of a job's result; the page made of it is about as large.
MAX_EVIDENCE_BYTES = 12 * 1024
MAX_NAMES = 8


class HeadEvidence(Document):
    """One head of the new model on `rows` held-out records, beside the champion where compared."""

    head: str
    rows: Count
    accuracy: float
    accuracy_interval: Interval
    macro_f1: float
    macro_f1_interval: Interval
    majority_accuracy: float
    calibration_error: float
    paired: PairedResult | None = None


class SliceEvidence(Document):
    """One head's macro-F1 in one language.

    `champion_macro_f1` is what the champion had on its own held-out records when it was made, which
    need not be these.
    """

    head: str
    lang: str
    rows: Count
    macro_f1: float
    macro_f1_interval: Interval | None = None
    champion_macro_f1: float | None = None


class LabelChange(Document):
    """Labels of a head that the champion has not, and that only it has; at most `MAX_NAMES` each.

    The counts are of all of them.
    """

    head: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    n_added: Count = 0
    n_removed: Count = 0


class ModelFigures(Document):
    """What a model is made of and what it costs to run: one thread, a window a call.

    `digest` is the bundle's, `data_digest` that of the files it learned from, `weights_digest` that
    of the graph's file. `host` names the processor features that count where it was measured.
    """

    version: str | None = None
    training_run: str
    backbone: str
    variant: Variant
    digest: str
    data_digest: str
    weights_digest: str
    megabytes: float | None = None
    windows_per_s: float | None = None
    p95_ms: float | None = None
    host: str = ""
    teachers: tuple[str, ...] = ()


class Evidence(Document):
    """`evidence.json`: the new model against the champion, which is null where there is none.

    `champion_version` is also known where the champion's files cannot be read. `choice` says why
    this variant ships. `rows` counts examples by split. `pages` are where the whole of it can be
    read, by name. `left_out` counts what was too much for the approval, by field.
    """

    new: ModelFigures
    champion: ModelFigures | None = None
    champion_version: str | None = None
    choice: str = ""
    rows: dict[str, int] = Field(default_factory=dict)
    heads: tuple[HeadEvidence, ...] = ()
    slices: tuple[SliceEvidence, ...] = ()
    gates: tuple[GateResult, ...] = ()
    labels: tuple[LabelChange, ...] = ()
    notes: tuple[str, ...] = ()
    pages: dict[str, str] = Field(default_factory=dict)
    left_out: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)

    def bounded(self, limit_bytes: int = MAX_EVIDENCE_BYTES) -> Self:
        """The same in at most so many bytes of JSON.

        Rows of the longest table go first, each table's last ones: `slices` and `gates` begin with
        what matters most.
        """
        kept, left_out = self, dict(self.left_out)
        while len(kept.model_dump_json().encode()) > limit_bytes:
            sizes = {name: len(getattr(kept, name)) for name in ("slices", "gates", "heads")}
            name = max(sizes, key=lambda each: sizes[each])
            if not sizes[name]:
                break  # nothing is left but what has a bound of its own
            left_out[name] = left_out.get(name, 0) + 1
            kept = kept.model_copy(
                update={name: getattr(kept, name)[:-1], "left_out": dict(left_out)}
            )
        return kept
