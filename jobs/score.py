"""The nightly job: a date's partition into published Parquet, exactly once."""

from __future__ import annotations

import logging
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from jobs.failures import Failures
from jobs.inference import Scorer, ShardWork, infer, tell_guesses
from jobs.options import (
    Context,
    dates_options,
    dry_run_option,
    job,
    overrides_argument,
    show_config,
)
from pipeline.bundle import fitting_text_flow
from pipeline.engines.registry import Registry
from pipeline.plan import Plan, plan_partition
from pipeline.publish import MANIFEST_FILE, Partition, reconcile
from pipeline.stops import check_stops
from schemas.errors import DataContractError
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from schemas.manifest import PartitionManifest
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
@click.option("--without-replays", is_flag=True, help="Take out rows that replays have added.")
@dry_run_option
@overrides_argument
def command(
    context: Context,
    task: str,
    date: str,
    through: str | None,
    without_replays: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Score a date's partition of TASK into Parquet.

    A second run over the same input, model and settings does no inference and says so. A run that
    was killed is finished by the next one, which scores only the shards that are missing. Rows that
    `nightmill replay` has added to the same run stay, unless --without-replays takes them out.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    if dry_run:
        return show_config(config, dates=[day.isoformat() for day in dates])
    return score_dates(config, dates, context=context, replays=not without_replays)


def score_dates(
    config: TaskConfig, dates: Sequence[dt.date], *, context: Context, replays: bool = True
) -> dict[str, Any]:
    """Scores and publishes each date; what cannot be scored fails only after the others are done.

    With `replays` a run to which rows were added since stands for the run itself.

    Raises:
        NightmillError: the first date's failure, after all dates were tried.
    """
    home = context.home
    # Resolved once: a promotion in the middle of the night changes nothing for this run.
    model, bundle = Registry(home).fetch(config.model_uri)
    # Checked here as well as in each worker: what a worker raises while it is built Ray retries.
    spec, _ = fitting_text_flow(bundle, config)
    log.info("model %s version %s (%s)", model.name, model.version, model.digest[:12])
    failures = Failures()
    done: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        runs = []
        for day in dates:
            partition = Partition(home, config.name, day)
            with failures.kept():
                # Before the input is read: the copies in the spool are the lock holder's.
                stack.enter_context(partition.lock())
                stack.callback(shutil.rmtree, partition.spool, ignore_errors=True)
                plan = plan_partition(
                    config, day, home=home, model=model,
                    cleaner_version=spec.cleaner_version, spool=partition.spool,
                )  # fmt: skip
                runs.append(_Run(plan, partition, replays=replays))
        with failures.kept():
            infer([run.work for run in runs], config, Scorer(model, bundle, spec.cleaner_version))
        for run in runs:
            with failures.kept():
                done[run.plan.date.isoformat()] = run.publish()
    failures.raise_outcome()
    return {"model": model.model_dump(), "partitions": done}


class _Run:
    """One partition's way from plan to publication."""

    def __init__(self, plan: Plan, partition: Partition, *, replays: bool) -> None:
        self.plan, self.partition = plan, partition
        self.reusable = partition.reusable(plan.run, replays=replays)
        self.work = ShardWork(
            plan.run, plan.date, partition.staging(plan.run),
            () if self.reusable else plan.survey.shards,
        )  # fmt: skip
        self._keep_runs = plan.task.score.keep_runs
        tell_guesses(plan.survey.inputs, what=self.label)

    @property
    def label(self) -> str:
        return f"{self.plan.task.name} {self.plan.date}"

    def publish(self) -> dict[str, Any]:
        """Publishes what is complete; answers the partition's line of the job's result."""
        if self.reusable is None:
            return self._put(self._reconciled())
        run = self.reusable.run
        if run != self.plan.run:
            log.info(
                "%s: rows of run %s were replayed since, which stays", self.label, self.plan.run
            )
        if self.partition.current() == self.reusable:
            self.partition.settle(keep_runs=self._keep_runs)
            log.info("%s: run %s is already published, no inference", self.label, run)
            return self._summary(self.reusable)
        log.info("%s: run %s is complete on disk, no inference", self.label, run)
        return self._put(self.reusable)

    def _reconciled(self) -> PartitionManifest:
        done = self.work.done()
        counters = reconcile(self.plan.survey.shards, done, what=self.label)
        task = self.plan.task
        try:
            check_stops(task.contract, counters, self.work.staging.rejected(), what=self.label)
        except DataContractError as error:
            raise DataContractError(
                f"{error}; `nightmill quarantine show {task.name} --date {self.plan.date} "
                f"--staged` shows the rows"
            ) from None
        return self.plan.manifest(done, counters)

    def _put(self, manifest: PartitionManifest) -> dict[str, Any]:
        self.partition.publish(manifest, keep_runs=self._keep_runs, effort=self.work.effort())
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
