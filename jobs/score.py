"""The nightly job: a date's partition into published Parquet, exactly once."""

from __future__ import annotations

import datetime as dt
import logging
import shutil
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobs import lineage_facts
from jobs.failures import Failures
from jobs.inference import Scorer, ShardWork, infer, tell_guesses
from jobs.lineage import step
from jobs.logs import bound
from jobs.options import (
    Context,
    dates_options,
    dry_run_option,
    job,
    overrides_argument,
    show_config,
)
from jobs.ray_ahead import RayAhead, ray_ahead
from jobs.saving import find_saving
from jobs.spent import divide
from pipeline.bundle import fitting_text_flow
from pipeline.engines.registry import Registry
from pipeline.plan import Plan, plan_partition
from pipeline.publish import MANIFEST_FILE, Partition, reconcile
from pipeline.run_report import NightFigures, describe_effort
from pipeline.score_cache import trim
from pipeline.sinks import mirror
from pipeline.step_clock import StepClock
from pipeline.stops import check_stops
from schemas.errors import ConfigError, DataContractError
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.home import Home
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
    with ray_ahead(config, dates, home=context.home) as ray:
        return score_dates(config, dates, ray=ray, context=context, replays=not without_replays)


def score_dates(
    config: TaskConfig,
    dates: Sequence[dt.date],
    *,
    ray: RayAhead,
    context: Context,
    replays: bool = True,
) -> dict[str, Any]:
    """Scores and publishes each date; what cannot be scored fails only after the others are done.

    With `replays` a run to which rows were added since stands for the run itself.

    Raises:
        NightmillError: the first date's failure, after all dates were tried.
    """
    home, clock = context.home, StepClock()
    # Resolved once: a promotion in the middle of the night changes nothing for this run.
    registry = Registry(home)
    model, bundle = registry.fetch(config.model_uri)
    # Checked here as well as in each worker: what a worker raises while it is built Ray retries.
    spec, _ = fitting_text_flow(bundle, config)
    log.info("model %s version %s (%s)", model.name, model.version, model.digest[:12])
    saving = find_saving(config, registry, model, spec, home=home, dates=dates)
    scorer = Scorer(model, bundle, spec.cleaner_version, saving, home.plans, home.verified)
    clock.lap("model")
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
                    cascade=scorer.cascade,
                )  # fmt: skip
                runs.append(_Run(plan, partition, home=home, replays=replays))
        clock.lap("survey")
        works = [run.work for run in runs]
        divide(clock.seconds, [work.spent for work in works])
        tell = partial(_tell_metrics, config, home, runs)
        tell(must=True)
        with failures.kept():
            infer(works, config, scorer, ray=ray, tell=tell)
        if saving.cache is not None:
            trim(saving.cache, max_bytes=config.score.cache.max_bytes)
        for run in (run for run in runs if not run.work.given_up):
            with failures.kept(), bound(date=run.plan.date, run=run.plan.run):
                with run.step.watched():
                    done[run.plan.date.isoformat()] = run.publish()
                run.tell(home)
                run.mirror(home)
        tell()
    failures.raise_outcome()
    return {"model": model.model_dump(), "partitions": done}


def _tell_metrics(
    config: TaskConfig, home: Home, runs: Sequence[_Run], *, must: bool = False
) -> None:
    """Writes the metrics file, where one is asked for; a night goes on though it fails later."""
    if config.score.metrics_file is None:
        return
    # Only who asks for metrics waits for their library.
    from pipeline.engines.prometheus_file import write_metrics  # noqa: PLC0415

    path = home.resolve(config.score.metrics_file)
    try:
        write_metrics(path, [run.figures() for run in runs])
    except ConfigError as error:
        if must:
            raise
        log.warning("%s", error)


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


class _Run:
    """One partition's way from plan to publication."""

    def __init__(self, plan: Plan, partition: Partition, *, home: Home, replays: bool) -> None:
        self.plan, self.partition = plan, partition
        self.reusable = partition.reusable(plan.run, replays=replays)
        self.work = ShardWork(
            plan.run, plan.date, partition.staging(plan.run),
            () if self.reusable else plan.survey.shards, plan.task.score.price_per_hour,
        )  # fmt: skip
        self.step = step(
            "score", plan.task.name, home=home, date=plan.date.isoformat(),
            identity=self.reusable.run if self.reusable else plan.run,
        )  # fmt: skip
        if self.reusable is None:
            self.step.start()
        self._published: PartitionManifest | None = None
        self._keep_runs = plan.task.score.keep_runs
        tell_guesses(plan.survey.inputs, what=self.label)

    @property
    def label(self) -> str:
        return f"{self.plan.task.name} {self.plan.date}"

    def figures(self) -> NightFigures:
        """What has become of the rows until now, and at what cost."""
        published = self._published
        last = self.partition.publications()[-1] if published else None
        return NightFigures(
            self.plan.task.name,
            self.plan.date.isoformat(),
            rows=sum(file.rows for file in self.plan.survey.inputs),
            counters=published.counters if published else self.work.kept + self.work.spent.counters,
            effort=last if last and self.work.todo else self.work.effort(),
            succeeded_at=_seconds(last.published_at) if last else None,
        )

    def publish(self) -> dict[str, Any]:
        """Publishes what is complete; answers the partition's line of the job's result."""
        self._published = self._publish()
        return self._summary(self._published)

    def tell(self, home: Home) -> None:
        """The lineage event of what is published; of a finished night the same one again."""
        self.step.complete(partial(lineage_facts.scored, self.plan.task, home, self.partition))

    def mirror(self, home: Home) -> None:
        """Copies what is published to the task's sinks, if only what an earlier run left to do."""
        mirror(self.plan.task, self.partition, self.partition.published(), home=home)

    def _publish(self) -> PartitionManifest:
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
            return self.reusable
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

    def _put(self, manifest: PartitionManifest) -> PartitionManifest:
        self.partition.publish(manifest, keep_runs=self._keep_runs, effort=self.work.effort())
        counters = manifest.counters
        log.info(
            "%s: published run %s: %d read = %d scored + %d quarantined, %d to people",
            self.label, manifest.run, counters.rows_read, counters.rows_scored,
            counters.rows_quarantined, counters.rows_to_review,
        )  # fmt: skip
        log.info("%s: %s", self.label, describe_effort(self.partition.publications()[-1]))
        return manifest

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
