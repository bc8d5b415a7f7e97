"""What a run costs: measured by its workers, summed up by the driver as their answers come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.engines.memory import peak_rss_mib
from schemas.manifest import Counters, Effort, ShardManifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.step_clock import StepClock
    from schemas.manifest import Shard

WORKER_STEPS = ("text", "infer", "write")


@dataclass
class Spent:
    """Seconds, tokens and memory of one run; `steps` are the driver's."""

    steps: Counter[str] = field(default_factory=Counter)
    worker_steps: Counter[str] = field(default_factory=Counter)
    worker_seconds: float = 0.0
    worker_peak_mib: int = 0
    texts_remembered: int = 0
    counters: Counters = field(default_factory=Counters)

    def add(self, answer: Mapping[str, Any]) -> Counters:
        """Adds a worker's answer on one shard; answers what became of its rows, if it is done."""
        figures = [answer[f"{step}_s"] for step in WORKER_STEPS]
        self.worker_steps.update(dict(zip(WORKER_STEPS, figures, strict=True)))
        self.worker_seconds += sum(figures)
        self.worker_peak_mib = max(self.worker_peak_mib, answer["peak_mib"])
        self.texts_remembered += answer["texts_remembered"]
        if not answer["manifest"]:
            return Counters()
        counters = ShardManifest.model_validate_json(answer["manifest"]).counters
        self.counters += counters
        return counters

    def effort(
        self,
        todo: Sequence[Shard],
        *,
        kept: int,
        workers: int,
        machines: int,
        price_per_hour: float | None,
    ) -> Effort:
        """The figures of a run that had `todo` to score and `kept` shards already done."""
        return Effort(
            seconds=round(sum(self.steps.values()), 3),
            shards_scored=len(todo),
            rows_scored=sum(shard.rows_to_do for shard in todo),
            worker_seconds=round(self.worker_seconds, 3),
            workers=workers,
            shards_kept=kept,
            tokens=self.counters.tokens_inferred,
            texts_remembered=self.texts_remembered,
            worker_peak_mib=self.worker_peak_mib,
            steps=_rounded(self.steps),
            worker_steps=_rounded(self.worker_steps),
            machines=machines,
            price_per_hour=price_per_hour,
        )


def shard_figures(clock: StepClock, *, texts_remembered: int = 0) -> dict[str, Any]:
    """What a worker adds to its answer: seconds by step, and its memory's peak."""
    seconds = {f"{step}_s": clock.seconds.get(step, 0.0) for step in WORKER_STEPS}
    return seconds | {"peak_mib": peak_rss_mib(), "texts_remembered": texts_remembered}


def divide(seconds: Mapping[str, float], spent: Sequence[Spent]) -> None:
    """Gives each run its part of steps that they shared, by the work that it was."""
    total = sum(each.worker_seconds for each in spent)
    for each in spent:
        part = each.worker_seconds / total if total else 1 / len(spent)
        each.steps.update({step: amount * part for step, amount in seconds.items()})


def _rounded(steps: Mapping[str, float]) -> dict[str, float]:
    return {step: round(seconds, 3) for step, seconds in steps.items()}
