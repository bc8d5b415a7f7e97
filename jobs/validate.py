"""`nightmill validate`: a date's partition against the contract, and the pages people read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, dates_options, job, overrides_argument
from pipeline.engines.great_expectations_suite import check_partition
from pipeline.partition_profile import PartitionProfile
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.spool import temporary_spool
from pipeline.survey import find_inputs, survey
from pipeline.validate import Validator
from schemas.errors import DataContractError
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    from datetime import date as Date
    from pathlib import Path

    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """What was found on one date; `problems` is empty where the contract holds."""

    profile: PartitionProfile
    page: Path
    problems: tuple[str, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The date's part of the job's result."""
        return {
            "rows": self.profile.rows,
            "rejected": self.profile.rejected,
            "by_reason": {str(reason): n for reason, n in sorted(self.profile.by_reason.items())},
            "page": str(self.page),
        }


@job(
    "validate",
    epilog="\b\nExamples:\n"
    "  nightmill validate tickets --date 2026-11-28\n"
    "  nightmill validate tickets --date 2026-11-01 --through 2026-11-28\n"
    "  nightmill validate reviews --date 2026-11-28 contract.max_reject_fraction=0.2\n",
)
@click.argument("task")
@dates_options
@overrides_argument
def command(
    context: Context, *, task: str, date: str, through: str | None, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Check a date's partition against the contract of TASK and write its pages.

    All dates are checked, and their pages written, before the first broken contract ends the job
    with exit code 3.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    last = parse_date(through, name="--through") if through else first
    summaries: dict[str, Any] = {}
    problems: list[str] = []
    for day in date_range(first, last):
        try:
            verdict = check_date(config, context, day)
        except DataContractError as error:
            problems.append(f"{day}: {error}")
            continue
        summaries[day.isoformat()] = verdict.summary
        problems += [f"{day}: {problem}" for problem in verdict.problems]
    if problems:
        raise DataContractError(f"task {config.name!r}: " + "; ".join(problems))
    return {"dates": summaries}


def check_date(task: TaskConfig, context: Context, day: Date) -> Verdict:
    """Reads a date's partition, checks it and writes its pages.

    Raises:
        DataContractError: there is no input, or a file of it cannot be read at all.
    """
    profile = profile_partition(task, context, day)
    folder = context.home.quality(task.name) / f"date={day}"
    result = check_partition(task, profile, folder=folder)
    problems = _broken_gates(task, profile)
    # The two gates say it in their own words, with examples.
    problems += [
        failure.message
        for failure in result.failures
        if failure.critical and failure.column != "row_rejected" and failure.column is not None
    ]
    log.info(
        "%s %s: %d rows, %d rejected, %s; pages at %s",
        task.name, day, profile.rows, profile.rejected, "broken" if problems else "sound",
        result.page,
    )  # fmt: skip
    return Verdict(profile, result.page, tuple(problems))


def profile_partition(task: TaskConfig, context: Context, day: Date) -> PartitionProfile:
    """The profile of all rows of a date.

    Raises:
        DataContractError: there is no input, or a file of it cannot be read at all.
    """
    paths = find_inputs(task.data.incoming, context.home, date=day)
    validator = Validator(task.data, task.contract)
    profile = PartitionProfile(task)
    with temporary_spool(context.home, task.name) as spool:
        found = survey(
            paths,
            data=task.data,
            home=context.home,
            rows_per_shard=task.score.rows_per_shard,
            spool=spool,
            unique_columns=task.contract.unique_columns,
        )
        for shard in found.shards:
            for row in read_shard(shard):
                profile.add(row, row if isinstance(row, Rejected) else validator.check(row, day))
    return profile


def _broken_gates(task: TaskConfig, profile: PartitionProfile) -> list[str]:
    contract = task.contract
    problems: list[str] = []
    if profile.rows < contract.min_rows:
        problems.append(
            f"got {profile.rows} rows, expected at least {contract.min_rows}; "
            f"set contract.min_rows=0 for quiet days"
        )
    fraction = profile.rejected / profile.rows if profile.rows else 0.0
    if fraction > contract.max_reject_fraction:
        reasons = ", ".join(
            f"{reason} {count} (such as {', '.join(profile.examples[reason])})"
            for reason, count in profile.by_reason.most_common()
        )
        problems.append(
            f"{profile.rejected} of {profile.rows} rows rejected ({fraction:.1%}), at most "
            f"{contract.max_reject_fraction:.1%} may be: {reasons}; mend the data, or raise "
            f"contract.max_reject_fraction"
        )
    return problems
