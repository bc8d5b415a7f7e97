"""Shards of several runs scored in one Ray session: what `score` and `replay` share."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.progress import Progress, nobody
from jobs.spent import Spent, divide
from pipeline.bundle import calibrate_host, load_spec
from pipeline.cascade import NO_SAVING, Saving
from pipeline.step_clock import StepClock
from pipeline.verified_hosts import check_host
from schemas.errors import NightmillError, ShardError
from schemas.manifest import Counters

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from jobs.ray_ahead import RayAhead
    from pipeline.staging import Staging
    from schemas.manifest import CascadeRef, Effort, InputFile, ModelRef, Shard, ShardManifest
    from schemas.task import TaskConfig
    from schemas.verification import KindOfHost

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scorer:
    """What scores: a model, its bundle in a local folder, the text cleaner's version, savings.

    `plans` is where hosts keep what they measured; without it each window is a call of its own.
    `verified` is where they keep which bundles have passed their gates on them; without it nobody
    asks.
    """

    model: ModelRef
    bundle: Path
    cleaner_version: str
    saving: Saving = NO_SAVING
    plans: Path | None = None
    verified: Path | None = None

    @property
    def cascade(self) -> CascadeRef | None:
        """The smaller model that answers first, None where there is none."""
        return self.saving.cascade.ref if self.saving.cascade else None

    @property
    def bundles(self) -> tuple[Path, ...]:
        """The folders of all models that may answer."""
        small = self.saving.cascade
        return (self.bundle,) if small is None else (self.bundle, small.bundle)

    def check_hosts(self, task: TaskConfig, hosts: Mapping[str, KindOfHost]) -> None:
        """Makes sure that all models have passed their gates on hosts like these.

        Raises:
            ArtifactError: see `pipeline.verified_hosts.check_host`.
        """
        if self.verified is None:
            return
        small = self.saving.cascade
        models = [self.model] if small is None else [self.model, small.ref.small]
        for model, bundle in zip(models, self.bundles, strict=True):
            name = model.address(local=f"path:{bundle}")
            spec = load_spec(bundle)
            for where, host in hosts.items():
                check_host(spec, host, task.score, verified=self.verified, name=name, where=where)

    def calibrate(self, task: TaskConfig) -> None:
        """Measures this host where nothing is known of it; workers read it from `plans`."""
        if self.plans is not None:
            for bundle in self.bundles:
                calibrate_host(bundle, task, plans=self.plans)


@dataclass
class ShardWork:
    """The shards of one run, where they are staged, and what they have cost so far."""

    run: str
    date: dt.date
    staging: Staging
    shards: tuple[Shard, ...]
    price_per_hour: float | None = None
    spent: Spent = field(default_factory=Spent)
    workers: int = 0
    machines: int = 0
    given_up: bool = False  # shards are missing, and an error has said why
    todo: tuple[Shard, ...] = field(init=False)
    kept: Counters = field(init=False)

    def __post_init__(self) -> None:
        finished = self.done()
        self.todo = tuple(shard for shard in self.shards if shard.index not in finished)
        self.kept = sum((each.counters for each in finished.values()), start=Counters())

    def done(self) -> dict[int, ShardManifest]:
        """Manifests of the shards that are staged by now."""
        return self.staging.finished(self.shards)

    def effort(self) -> Effort:
        """What the run has cost until now."""
        return self.spent.effort(
            self.todo, kept=len(self.shards) - len(self.todo), workers=self.workers,
            machines=self.machines, price_per_hour=self.price_per_hour,
        )  # fmt: skip


def infer(
    works: Sequence[ShardWork],
    task: TaskConfig,
    scorer: Scorer,
    *,
    ray: RayAhead | None = None,
    tell: Callable[[], None] = nobody,
) -> None:
    """Scores what is left of all runs in one Ray session; starts none if nothing is left.

    A session that began ahead is waited for. `tell` is called whenever progress is told.

    Raises:
        ShardError: some shards failed; the others are kept.
        NightmillError: none was begun, see `scoring_pool`.
    """
    works = [work for work in works if work.todo]
    todo = [(work, shard) for work in works for shard in work.todo]
    if not todo:
        return
    if kept := sum(len(work.shards) - len(work.todo) for work in works):
        log.info("resuming: %d shards are already done, %d to do", kept, len(todo))
    for work in works:
        work.staging.begin()
    clock = StepClock()
    try:
        _check_device(task)
        if ray is not None:
            ray.wait()
        errors = _score(todo, task, scorer, clock=clock, tell=tell)
        if errors:
            raise ShardError(f"{len(errors)} of {len(todo)} shards failed: {'; '.join(errors[:3])}")
    except NightmillError:
        for work in works:
            work.given_up = len(work.done()) < len(work.shards)
        raise
    finally:
        clock.lap("stop")
        divide(clock.seconds, [work.spent for work in works])


def _check_device(task: TaskConfig) -> None:
    """Makes sure of a GPU's runtime here: what a worker raises while it is built Ray retries."""
    if task.score.device == "gpu":
        from pipeline.engines.gpu_session import check_gpu_runtime  # noqa: PLC0415 - seconds

        check_gpu_runtime()


def _score(
    todo: Sequence[tuple[ShardWork, Shard]],
    task: TaskConfig,
    scorer: Scorer,
    *,
    clock: StepClock,
    tell: Callable[[], None],
) -> list[str]:
    """Scores the shards; answers what went wrong with those that failed."""
    # Ray takes seconds to import, and a run that is already published needs none of it.
    from jobs.cluster import scoring_pool  # noqa: PLC0415
    from jobs.scoring import ShardTask, score_shards  # noqa: PLC0415

    tasks = [ShardTask(shard, work.staging.folder, work.date, work.run) for work, shard in todo]
    by_run = {work.run: work for work, _ in todo}
    errors: list[str] = []
    rows = sum(shard.rows_to_do for _, shard in todo)
    shards = dict.fromkeys(shard.path for _, shard in todo)
    files: list[Path | str] = [*scorer.bundles, *shards]
    with scoring_pool(task.score, shards=len(todo), shared=tasks[0].staging, files=files) as pool:
        scorer.check_hosts(task, pool.hosts)
        # Once, before the workers take the CPUs: they read what was measured.
        scorer.calibrate(task)
        clock.lap("start")
        for work in by_run.values():
            work.workers, work.machines = pool.workers, pool.machines
        with closing(Progress(rows=rows, shards=len(todo), tell=tell)) as progress:
            for answer in score_shards(
                tasks, bundle=scorer.bundle, task=task, model=scorer.model,
                cleaner_version=scorer.cleaner_version, workers=pool.workers,
                saving=scorer.saving, plans=scorer.plans,
            ):  # fmt: skip
                counters = by_run[answer["run"]].spent.add(answer)
                progress.add(counters)
                if answer["error"]:
                    errors.append(f"run {answer['run']} shard {answer['index']}: {answer['error']}")
        clock.lap("scoring")
    return errors


def tell_guesses(inputs: Sequence[InputFile], *, what: str) -> None:
    """Warns of each file whose encoding nothing declared: a guess may be wrong."""
    for file in inputs:
        if file.encoding_guessed:
            log.warning(
                "%s: %s is not UTF-8 and was read as %s by a guess; data.encoding declares it",
                what, file.name, file.encoding,
            )  # fmt: skip
