"""Shards of several runs scored in one Ray session: what `score` and `replay` share."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.progress import Progress
from pipeline.engines.host import usable_cpus
from pipeline.publish import Effort
from schemas.errors import ShardError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.staging import Staging
    from schemas.manifest import InputFile, ModelRef, Shard, ShardManifest
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scorer:
    """What scores: a model, its bundle in a local folder, and the text cleaner's version."""

    model: ModelRef
    bundle: Path
    cleaner_version: str


@dataclass
class ShardWork:
    """The shards of one run, where they are staged, and what they have cost so far."""

    run: str
    date: dt.date
    staging: Staging
    shards: tuple[Shard, ...]
    worker_seconds: float = 0.0
    workers: int = 0
    todo: tuple[Shard, ...] = field(init=False)
    _started: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        finished = self.done()
        self.todo = tuple(shard for shard in self.shards if shard.index not in finished)

    def done(self) -> dict[int, ShardManifest]:
        """Manifests of the shards that are staged by now."""
        return self.staging.finished(self.shards)

    def effort(self) -> Effort:
        """What the run has cost from its start until now."""
        return Effort(
            seconds=round(time.monotonic() - self._started, 3),
            shards_scored=len(self.todo),
            rows_scored=sum(shard.rows_to_do for shard in self.todo),
            worker_seconds=round(self.worker_seconds, 3),
            workers=self.workers,
        )


def infer(works: Sequence[ShardWork], task: TaskConfig, scorer: Scorer) -> None:
    """Scores what is left of all runs in one Ray session; starts none if nothing is left.

    Raises:
        ShardError: some shards failed; the others are kept.
    """
    todo = [(work, shard) for work in works for shard in work.todo]
    if not todo:
        return
    if kept := sum(len(work.shards) - len(work.todo) for work in works):
        log.info("resuming: %d shards are already done, %d to do", kept, len(todo))
    workers = min(task.score.workers or usable_cpus(), len(todo))
    by_run = {work.run: work for work in works}
    errors: list[str] = []
    with closing(Progress(rows=sum(shard.rows_to_do for _, shard in todo))) as progress:
        for result in _results(todo, task, scorer, workers=workers):
            work = by_run[result["run"]]
            work.workers = workers
            work.worker_seconds += result["seconds"]
            if result["error"]:
                errors.append(f"run {work.run} shard {result['index']}: {result['error']}")
            else:
                progress.add(result["manifest"])
    if errors:
        raise ShardError(f"{len(errors)} of {len(todo)} shards failed: {'; '.join(errors[:3])}")


def _results(
    todo: Sequence[tuple[ShardWork, Shard]], task: TaskConfig, scorer: Scorer, *, workers: int
) -> Iterator[dict[str, Any]]:
    # Ray takes seconds to import, and a run that is already published needs none of it.
    from jobs.ray_session import ray_session  # noqa: PLC0415
    from jobs.scoring import ShardTask, score_shards  # noqa: PLC0415

    tasks = [ShardTask(shard, work.staging.folder, work.date, work.run) for work, shard in todo]
    with ray_session(cpus=workers):
        yield from score_shards(
            tasks, bundle=scorer.bundle, task=task, model=scorer.model,
            cleaner_version=scorer.cleaner_version, workers=workers,
        )  # fmt: skip


def tell_guesses(inputs: Sequence[InputFile], *, what: str) -> None:
    """Warns of each file whose encoding nothing declared: a guess may be wrong."""
    for file in inputs:
        if file.encoding_guessed:
            log.warning(
                "%s: %s is not UTF-8 and was read as %s by a guess; data.encoding declares it",
                what, file.name, file.encoding,
            )  # fmt: skip
