"""`nightmill validate`: a date's partition against the contract, and the pages people read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobs import lineage_facts
from jobs.lineage import step, this_try
from jobs.logs import bound
from jobs.options import Context, dates_options, job, overrides_argument
from pipeline.bundle import text_flow
from pipeline.drift import PROFILE_FILE, drift_bounds, read_history
from pipeline.engines.champion_tokenizer import champion_tokenizer
from pipeline.engines.great_expectations_suite import check_partition
from pipeline.engines.quality_pages import (
    INDEX,
    TEXT_PAGE,
    CheckedExpectation,
    QualityReport,
    finish_pages,
)
from pipeline.engines.text_profile_page import write_text_page
from pipeline.expectations import expectations
from pipeline.inspection import Inspection, inspect_partition
from pipeline.quality_folder import replaced_folder
from pipeline.spool import temporary_spool
from pipeline.survey import find_inputs, survey
from pipeline.verdict import problems, warnings
from schemas.errors import DataContractError
from schemas.load import load_task
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    from datetime import date as Date
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from schemas.manifest import InputFile
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """What was found on one date; `problems` is empty where the contract holds."""

    found: Inspection
    folder: Path
    inputs: tuple[InputFile, ...]
    checked: tuple[CheckedExpectation, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The date's part of the job's result."""
        profile = self.found.profile
        return {
            "rows": profile.rows,
            "rejected": profile.rejected,
            "by_reason": {str(reason): n for reason, n in sorted(profile.by_reason.items())},
            "warnings": len(self.warnings),
            "page": str(self.folder / INDEX),
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
    tokenizer = champion_tokenizer(config, context.home)
    summaries: dict[str, Any] = {}
    broken: list[str] = []
    for day in date_range(first, last):
        try:
            verdict = _check_and_tell(config, context, day, tokenizer)
        except DataContractError as error:
            broken.append(f"{day}: {error}")
            continue
        summaries[day.isoformat()] = verdict.summary
        if verdict.problems:
            broken.append(f"{day}: {'; '.join(verdict.problems)}")
    if broken:
        raise DataContractError(f"task {config.name!r}: " + "; ".join(broken))
    return {"dates": summaries}


def _check_and_tell(
    task: TaskConfig, context: Context, day: Date, tokenizer: BackboneTokenizer | None
) -> Verdict:
    """As `check_date`, with lineage events; each check is a run of its own."""
    name, home = f"{day}/{this_try()}", context.home
    told = step("validate", task.name, home=home, identity=name, date=f"{day}").start()
    with told.watched(), bound(date=day):
        verdict = check_date(task, context, day, tokenizer)
    facts = partial(
        lineage_facts.validated, task, home, verdict.inputs, verdict.checked,
        pages=str(verdict.folder),
    )  # fmt: skip
    if verdict.problems:
        told.fail("; ".join(verdict.problems), facts)
    else:
        told.complete(facts)
    return verdict


def check_date(
    task: TaskConfig, context: Context, day: Date, tokenizer: BackboneTokenizer | None
) -> Verdict:
    """Reads a date's partition, checks it and writes its pages.

    Raises:
        DataContractError: there is no input, or a file of it cannot be read at all.
    """
    inputs, found = _inspect(task, context, day, tokenizer)
    folder = context.home.quality(task.name) / f"date={day}"
    checked = _write_pages(found, folder)
    verdict = Verdict(
        found,
        folder,
        inputs,
        checked,
        problems(checked, found.profile, found.validator),
        warnings(checked, found.validator),
    )
    for warning in verdict.warnings:
        log.warning("%s %s: %s", task.name, day, warning)
    log.info(
        "%s %s: %d rows, %d rejected, %s; pages at %s",
        task.name, day, found.profile.rows, found.profile.rejected,
        "broken" if verdict.problems else "sound", folder / INDEX,
    )  # fmt: skip
    return verdict


def _inspect(
    task: TaskConfig, context: Context, day: Date, tokenizer: BackboneTokenizer | None
) -> tuple[tuple[InputFile, ...], Inspection]:
    paths = find_inputs(task.data.incoming, context.home, date=day)
    with temporary_spool(context.home, task.name) as spool:
        surveyed = survey(
            paths,
            data=task.data,
            home=context.home,
            rows_per_shard=task.score.rows_per_shard,
            spool=spool,
            unique_columns=task.contract.unique_columns,
        )
        for guess in surveyed.guesses:
            log.warning("%s %s: %s", task.name, day, guess)
        flow = text_flow(task, tokenizer)
        found = inspect_partition(task, day, surveyed.shards, flow, vocabulary=tokenizer)
        return surveyed.inputs, found


def _write_pages(found: Inspection, folder: Path) -> tuple[CheckedExpectation, ...]:
    """Pages and profile, put in place at once; the answers that the pages show."""
    task, profile = found.task, found.profile
    drift = task.contract.drift
    history = read_history(folder.parent, before=found.date, partitions=drift.partitions)
    asked = expectations(task, profile, drift_bounds(history, drift))
    statistics = found.statistics()
    with replaced_folder(folder) as pages:
        checked = check_partition(
            asked, profile.measured, pages=pages, name=f"{task.name} {folder.name}"
        )
        write_text_page(statistics.text, pages / TEXT_PAGE, title=f"{task.name} {found.date}")
        by_reason = {str(reason): count for reason, count in profile.by_reason.items()}
        report = QualityReport(task.name, str(found.date), profile.rows, by_reason, checked)
        finish_pages(pages, report, links={TEXT_PAGE: "Text profile"})
        statistics.write(pages / PROFILE_FILE)
    return checked
