"""Shards over Ray Data: descriptors of a few hundred bytes go out, shard manifests come back."""

from __future__ import annotations

import datetime as dt
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from pipeline.bundle import scoring_flow
from pipeline.read import read_shard
from pipeline.staging import Staging
from pipeline.tables import Lineage, quarantine_table, scores_table
from schemas.errors import NightmillError, ShardError
from schemas.manifest import ModelRef, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardTask:
    """One shard to score: where it is read from, where it goes, whose rows they are."""

    shard: Shard
    staging: Path
    date: dt.date
    run: str

    def to_row(self) -> dict[str, Any]:
        """The descriptor as Ray Data carries it."""
        return {
            "shard": self.shard.model_dump_json(),
            "staging": str(self.staging),
            "date": self.date.isoformat(),
            "run": self.run,
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> ShardTask:
        """The descriptor as a worker wants it."""
        return cls(
            Shard.model_validate_json(row["shard"]),
            Path(row["staging"]),
            dt.date.fromisoformat(row["date"]),
            row["run"],
        )


class ShardWorker:
    """A long-lived actor: session and tokenizer are built once, each call runs a whole shard."""

    def __init__(
        self, bundle: Path, task: TaskConfig, model: ModelRef, cleaner_version: str
    ) -> None:
        self._flow = scoring_flow(bundle, task, threads=1)
        self._task = task
        self._model = model
        self._cleaner_version = cleaner_version

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Scores one shard into staging; answers its manifest, or what went wrong with it."""
        work = ShardTask.from_row(row)
        answer = {"run": work.run, "index": work.shard.index, "manifest": "", "error": ""}
        started = time.perf_counter()
        try:
            answer["manifest"] = self.score(work)
        except Exception as error:  # noqa: BLE001 - one shard's failure must not end the others
            answer["error"] = f"{type(error).__name__}: {error}"
        return answer | {"seconds": time.perf_counter() - started}

    def score(self, work: ShardTask) -> str:
        """Scores one shard and answers its manifest as JSON."""
        lineage = Lineage(work.date, self._model, self._cleaner_version, work.run)
        outcome = self._flow.score(read_shard(work.shard), date=work.date)
        manifest = Staging(work.staging).write(
            work.shard,
            scores=scores_table(outcome.scored, self._task.heads, lineage),
            quarantine=quarantine_table(
                outcome.rejected,
                policy=self._task.quarantine,
                contract_version=self._task.contract_version,
            ),
            counters=outcome.counters,
        )
        return manifest.model_dump_json()


def score_shards(
    work: Sequence[ShardTask],
    *,
    bundle: Path,
    task: TaskConfig,
    model: ModelRef,
    cleaner_version: str,
    workers: int,
) -> Iterator[dict[str, Any]]:
    """Results of `ShardWorker` for each shard, as they finish, in no order.

    Raises:
        ShardError: no progress for `score.no_progress_timeout_s`, or Ray lost the job; finished
            shards are kept.
    """
    context = ray.data.DataContext.get_current()
    context.use_datasource_v2 = False  # V2 ignores override_num_blocks: one block, one actor
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = task.score.no_progress_timeout_s
    dataset = ray.data.from_items(
        [item.to_row() for item in work], override_num_blocks=len(work)
    ).map(
        ShardWorker,
        fn_constructor_args=(bundle, task, model, cleaner_version),
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(work))),
        num_cpus=1,
    )
    try:
        yield from dataset.iter_rows()
    except NightmillError:
        raise
    except Exception as error:
        raise ShardError(
            f"Ray stopped before all {len(work)} shards were done ({type(error).__name__}: "
            f"{str(error)[:500]}); finished shards are kept, run again"
        ) from error
