"""Writes sample tickets and reviews into the home folder."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import click

from jobs.options import Context, job
from pipeline.sample.write import FIRST_DATE, FolderCount, SamplePlan, write_samples
from schemas.partition import parse_date

log = logging.getLogger(__name__)


@job(
    "sample",
    epilog="\b\nExamples:\n"
    "  nightmill sample\n"
    "  nightmill sample --days 30 --rows 1000 --seed 11\n",
)
@click.option("--first-date", default=str(FIRST_DATE), show_default=True, help="Day to begin with.")
@click.option("--days", default=7, show_default=True, help="Days of incoming rows.")
@click.option("--rows", default=200, show_default=True, help="Rows per day and task.")
@click.option("--history-rows", default=1600, show_default=True, help="Labelled rows per task.")
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same bytes.")
def command(context: Context, *, first_date: str, **numbers: int) -> dict[str, Any]:
    """Write sample tickets and reviews, with real-looking dirt.

    Below the home folder: labelled/ to train on, incoming/ to score, and outcomes/, what people
    decided later on about the incoming rows.
    """
    plan = SamplePlan(first_date=parse_date(first_date, name="--first-date"), **numbers)
    folders = write_samples(context.home, plan)
    total = sum(folders.values(), FolderCount())
    log.info(
        "wrote %d files with %d rows, %d of them faulty on purpose, below %s",
        total.files, total.rows, total.faulty_rows, context.home.root,
    )  # fmt: skip
    return {
        "first_date": str(plan.dates[0]),
        "last_date": str(plan.dates[-1]),
        "seed": plan.seed,
        "folders": {folder: asdict(count) for folder, count in folders.items()},
    }
