"""Quarantined rows of a published date, run again after a fix and merged into the partition."""

from __future__ import annotations

import logging
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from jobs.failures import Failures
from jobs.inference import Scorer, ShardWork, infer, tell_guesses
from jobs.options import Context, dates_options, job, overrides_argument
from jobs.saving import find_cascade
from pipeline.bundle import fitting_text_flow
from pipeline.cascade import Saving
from pipeline.engines.registry import Registry
from pipeline.merge import Replayed, merge
from pipeline.plan import plan_partition
from pipeline.publish import Partition, reconcile
from pipeline.replay import ReplayPlan, plan_replay
from pipeline.sinks import mirror
from pipeline.staging import Staging
from pipeline.stops import check_stops
from schemas.errors import ArtifactError, NightmillError
from schemas.load import load_task
from schemas.partition import date_range, parse_date
from schemas.reasons import parse_reasons

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from schemas.home import Home
    from schemas.manifest import ModelRef, PartitionManifest
    from schemas.reasons import Reason
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@job(
    "replay",
    epilog="\b\nExamples:\n"
    "  nightmill replay tickets --date 2026-11-28\n"
    "  nightmill replay tickets --date 2026-11-28 --reason text_too_long "
    "contract.max_text_chars=2000000\n"
    "  nightmill replay tickets --date 2026-11-22 --through 2026-11-28 --reason invalid_encoding\n",
)
@click.argument("task")
@dates_options
@click.option("--reason", "reasons", multiple=True, help="Only rows rejected for this reason.")
@overrides_argument
def command(
    context: Context,
    task: str,
    date: str,
    through: str | None,
    reasons: tuple[str, ...],
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Run the quarantined rows of a published date of TASK again, after a fix.

    The fix is in the task file, in the settings given here, or in the code. The model is the one
    that scored the date. Rows that can be scored now are added to the partition, all others stay
    as they are, to the byte. Where nothing can be scored, nothing is published.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    dates = date_range(first, parse_date(through, name="--through") if through else first)
    return replay_dates(config, dates, parse_reasons(reasons), context=context)


def replay_dates(
    config: TaskConfig,
    dates: Sequence[dt.date],
    reasons: tuple[Reason, ...],
    *,
    context: Context,
) -> dict[str, Any]:
    """Replays each date; what fails is raised only after the others are done.

    Raises:
        NightmillError: the first date's failure, after all dates were tried.
    """
    failures = Failures()
    done: dict[str, dict[str, Any]] = {}
    scorers = _Scorers(config, context.home)
    with ExitStack() as stack:
        runs: list[_Run] = []
        for day in dates:
            partition = Partition(context.home, config.name, day)
            with failures.kept():
                stack.enter_context(partition.lock())
                stack.callback(shutil.rmtree, partition.spool, ignore_errors=True)
                runs.append(
                    _Run(_plan(config, partition, reasons, scorers, context.home), partition)
                )
        for scorer in scorers.loaded:
            works = [run.work for run in runs if run.replay.plan.model == scorer.model]
            with failures.kept():
                infer(works, config, scorer)
        for run in (run for run in runs if not run.work.given_up):
            with failures.kept():
                done[run.partition.date.isoformat()] = run.publish()
                mirror(config, run.partition, run.partition.published(), home=context.home)
    failures.raise_outcome()
    return {"partitions": done}


class _Scorers:
    """The models that scored the dates, each fetched and checked once."""

    def __init__(self, task: TaskConfig, home: Home) -> None:
        self._task, self._home, self._registry = task, home, Registry(home)
        self.loaded: list[Scorer] = []

    def of(self, manifest: PartitionManifest) -> Scorer:
        """The very model that a manifest names, and its cascade.

        Raises:
            ArtifactError: it is gone, or its bundle does not fit the task as it is now.
        """
        known = (scorer for scorer in self.loaded if scorer.model == manifest.model)
        scorer = next(known, None) or self._load(manifest.model)
        if scorer.cascade != manifest.cascade:
            raise ArtifactError(
                f"{manifest.task} {manifest.date} was scored with another cascade than the task "
                f"has now; restore score.cascade, or run `nightmill score` again"
            )
        return scorer

    def _load(self, model: ModelRef) -> Scorer:
        uri = model.address(local=self._task.model_uri)
        found, bundle = self._registry.fetch(uri)
        if found != model:
            raise ArtifactError(
                f"{uri} is model {found.name} version {found.version} ({found.digest[:12]}), the "
                f"partition was scored by {model.name} version {model.version} "
                f"({model.digest[:12]}); set score.model to that, or run `nightmill score` again"
            )
        spec, _ = fitting_text_flow(bundle, self._task)
        cascade = find_cascade(self._task, self._registry, model, spec, home=self._home)
        saving = Saving(cascade=cascade)
        home = self._home
        self.loaded.append(
            Scorer(model, bundle, spec.cleaner_version, saving, home.plans, home.verified)
        )
        return self.loaded[-1]


def _plan(
    config: TaskConfig,
    partition: Partition,
    reasons: tuple[Reason, ...],
    scorers: _Scorers,
    home: Home,
) -> ReplayPlan:
    base = partition.intact()
    scorer = scorers.of(base)
    plan = plan_partition(
        config, partition.date, home=home, model=base.model,
        cleaner_version=scorer.cleaner_version, spool=partition.spool, cascade=base.cascade,
    )  # fmt: skip
    tell_guesses(plan.survey.inputs, what=f"{config.name} {partition.date}")
    return plan_replay(plan, base, reasons, partition=partition)


class _Run:
    """One partition's way from the rows in quarantine to publication."""

    def __init__(self, replay: ReplayPlan, partition: Partition) -> None:
        self.replay, self.partition = replay, partition
        # Apart from the merged files, which publication moves away.
        rows = Staging(partition.staging(replay.run).folder / "replayed")
        self.work = ShardWork(replay.run, partition.date, rows, replay.shards)

    @property
    def label(self) -> str:
        return f"{self.partition.task} {self.partition.date}"

    def publish(self) -> dict[str, Any]:
        """Merges what was scored; answers the partition's line of the job's result."""
        done = self.work.done()
        counters = reconcile(self.replay.shards, done, what=self.label)
        task = self.replay.plan.task
        if not counters.rows_scored:
            self.partition.settle(keep_runs=task.score.keep_runs)
            self._discard()
            log.info(
                "%s: of %d rows to replay none can be scored, nothing is published; run %s stays",
                self.label, self.replay.count, self.replay.base.run,
            )  # fmt: skip
            return self._summary(self.replay.base, rows_scored=0)
        replayed = Replayed(self.work.staging, done, counters)
        manifest = merge(self.replay, replayed, partition=self.partition)
        self._check_stops(manifest)
        self.partition.publish(manifest, keep_runs=task.score.keep_runs, effort=self.work.effort())
        log.info(
            "%s: published run %s: of %d replayed rows %d are scored now, %d stay in quarantine",
            self.label, manifest.run, self.replay.count, counters.rows_scored,
            counters.rows_quarantined,
        )  # fmt: skip
        return self._summary(manifest, rows_scored=counters.rows_scored)

    def _check_stops(self, manifest: PartitionManifest) -> None:
        contract = self.replay.plan.task.contract
        files = self.partition.staging(manifest.run).rejected()
        try:
            check_stops(contract, manifest.counters, files, what=self.label)
        except NightmillError:
            self._discard()
            raise

    def _discard(self) -> None:
        """Drops what was staged: the next replay may run other code, which no name tells."""
        shutil.rmtree(self.partition.staging(self.replay.run).folder, ignore_errors=True)

    def _summary(self, manifest: PartitionManifest, *, rows_scored: int) -> dict[str, Any]:
        return {
            "run": manifest.run,
            "base": self.replay.base.run,
            "rows_replayed": self.replay.count,
            "rows_scored": rows_scored,
            "rows_quarantined": manifest.counters.rows_quarantined,
            "quarantined_by_reason": manifest.counters.quarantined_by_reason,
            "published": rows_scored > 0,
        }
