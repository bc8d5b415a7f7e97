"""The nightly job: a date's partition into published Parquet, exactly once."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from jobs.options import (
    Context,
    dates_options,
    dry_run_option,
    job,
    overrides_argument,
    show_config,
)
from jobs.progress import Progress
from pipeline.bundle import fitting_text_flow
from pipeline.engines.host import usable_cpus
from pipeline.engines.registry import Registry
from pipeline.plan import Plan, check_reject_fraction, plan_partition
from pipeline.publish import MANIFEST_FILE, Effort, Partition, reconcile
from schemas.errors import NightmillError, ShardError
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.manifest import PartitionManifest, Shard
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@job(
    "score",
    epilog="\b\nExamples:\n"
    "  nightmill score tickets --date 2026-11-28\n"
    "  nightmill score tickets --date 2026-11-22 --through 2026-11-28\n"
    "  nightmill score tickets --date 2026-11-28 score.model=models:/tickets/3\n",
)
@click.argument("task")
@dates_options
@dry_run_option
@overrides_argument
def command(
    context: Context,
    task: str,
    date: str,
    through: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Score a date's partition of TASK into Parquet.

    A second run over the same input, model and settings does no inference and says so. A run that
    was killed is finished by the next one, which scores only the shards that are missing.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    if dry_run:
        return show_config(config, dates=[day.isoformat() for day in dates])
    return score_dates(config, dates, context=context)


def score_dates(
    config: TaskConfig, dates: Sequence[dt.date], *, context: Context
) -> dict[str, Any]:
    """Scores and publishes each date; what cannot be scored fails only after the others are done.

    Raises:
        NightmillError: the first date's failure, after all dates were tried.
    """
    home = context.home
    # Resolved once: a promotion in the middle of the night changes nothing for this run.
    model, bundle = Registry(home).fetch(config.model_uri)
    # Checked here as well as in each worker: what a worker raises while it is built Ray retries.
    spec, _ = fitting_text_flow(bundle, config)
    log.info("model %s version %s (%s)", model.name, model.version, model.digest[:12])
    failures: list[NightmillError] = []
    done: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        runs = []
        for day in dates:
            partition = Partition(home, config.name, day)
            try:
                stack.callback(shutil.rmtree, partition.spool, ignore_errors=True)
                plan = plan_partition(
                    config, day, home=home, model=model, spec=spec, spool=partition.spool
                )
                stack.enter_context(partition.lock())
                runs.append(_Run(plan, partition))
            except NightmillError as error:
                failures.append(error)
        _infer(runs, config, bundle, failures)
        for run in runs:
            try:
                done[run.plan.date.isoformat()] = run.publish()
            except NightmillError as error:
                failures.append(error)
    if failures:
        # What a retry can finish is the job's outcome: it will meet the others again.
        outcome = next((failure for failure in failures if failure.retryable), failures[0])
        for other in failures:
            if other is not outcome:
                log.error("%s: %s", type(other).__name__, other)
        raise outcome
    return {"model": model.model_dump(), "partitions": done}


class _Run:
    """One partition's way from plan to publication."""

    def __init__(self, plan: Plan, partition: Partition) -> None:
        self.plan, self.partition = plan, partition
        self.staging = partition.staging(plan.run)
        self.current = partition.current()
        self.reusable = partition.reusable(plan.run)
        self.finished = self.staging.finished(plan.survey.shards)
        self.todo = () if self.reusable else self._unfinished()
        self.worker_seconds = 0.0
        self.workers = 0
        self._started = time.monotonic()

    @property
    def label(self) -> str:
        return f"{self.plan.task.name} {self.plan.date}"

    def _unfinished(self) -> tuple[Shard, ...]:
        return tuple(s for s in self.plan.survey.shards if s.index not in self.finished)

    def publish(self) -> dict[str, Any]:
        """Publishes what is complete; answers the partition's line of the job's result."""
        if self.reusable is None:
            done = self.staging.finished(self.plan.survey.shards)
            counters = reconcile(self.plan.survey.shards, done, what=self.label)
            check_reject_fraction(self.plan, counters)
            return self._put(self.plan.manifest(done, counters))
        if self.current is not None and self.current.run == self.plan.run:
            log.info("%s: run %s is already published, no inference", self.label, self.plan.run)
            return self._summary(self.current)
        log.info("%s: run %s is complete on disk, no inference", self.label, self.plan.run)
        return self._put(self.reusable)

    def _put(self, manifest: PartitionManifest) -> dict[str, Any]:
        effort = Effort(
            seconds=round(time.monotonic() - self._started, 3),
            shards_scored=len(self.todo),
            rows_scored=sum(shard.rows for shard in self.todo),
            worker_seconds=round(self.worker_seconds, 3),
            workers=self.workers,
        )
        self.partition.publish(manifest, keep_runs=self.plan.task.score.keep_runs, effort=effort)
        counters = manifest.counters
        log.info(
            "%s: published run %s: %d read = %d scored + %d quarantined, %d to people",
            self.label, manifest.run, counters.rows_read, counters.rows_scored,
            counters.rows_quarantined, counters.rows_to_review,
        )  # fmt: skip
        return self._summary(manifest)

    def _summary(self, manifest: PartitionManifest) -> dict[str, Any]:
        counters = manifest.counters
        return {
            "run": manifest.run,
            "manifest": str(self.partition.scores / MANIFEST_FILE),
            "rows_read": counters.rows_read,
            "rows_scored": counters.rows_scored,
            "rows_quarantined": counters.rows_quarantined,
            "rows_to_review": counters.rows_to_review,
            "reused": self.reusable is not None,
        }


def _infer(
    runs: Sequence[_Run], config: TaskConfig, bundle: Path, failures: list[NightmillError]
) -> None:
    """Scores the missing shards of all runs in one Ray session; starts none if nothing is missing.

    Failed shards become one ShardError at the end of `failures`; the others are kept.
    """
    missing = [(run, shard) for run in runs for shard in run.todo]
    if not missing:
        return
    # Ray takes seconds to import, and a run that is already published needs none of it.
    from jobs.ray_session import ray_session  # noqa: PLC0415
    from jobs.scoring import ShardTask, score_shards  # noqa: PLC0415

    work = [
        ShardTask(shard, run.staging.folder, run.plan.date, run.plan.run) for run, shard in missing
    ]
    kept = sum(len(run.finished) for run in runs)
    if kept:
        log.info("resuming: %d shards are already done, %d to do", kept, len(work))
    workers = min(config.score.workers or usable_cpus(), len(work))
    progress = Progress(rows=sum(shard.rows for _, shard in missing))
    errors = []
    by_run = {run.plan.run: run for run in runs}
    for run in runs:
        run.workers = workers
    plan = runs[0].plan
    with ray_session(cpus=workers):
        try:
            for result in score_shards(
                work, bundle=bundle, task=config, model=plan.model,
                cleaner_version=plan.cleaner_version, workers=workers,
            ):  # fmt: skip
                by_run[result["run"]].worker_seconds += result["seconds"]
                if result["error"]:
                    errors.append(f"run {result['run']} shard {result['index']}: {result['error']}")
                else:
                    progress.add(result["manifest"])
        except ShardError as error:
            failures.append(error)
    progress.close()
    if errors:
        failures.append(
            ShardError(f"{len(errors)} of {len(work)} shards failed: {'; '.join(errors[:3])}")
        )
