"""A task file for a data file of the user's own."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import click
import yaml

from jobs.options import Context, job
from pipeline.propose import propose_task
from pipeline.source import local_source
from schemas.errors import ConfigError
from schemas.load import parse_task
from schemas.manifest import write_atomically

log = logging.getLogger(__name__)


@job(
    "init",
    epilog="\b\nExamples:\n"
    "  nightmill init reviews.csv --text text --label sentiment\n"
    "  nightmill init tickets.parquet --text subject --text body --label queue --label priority\n",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--text", multiple=True, required=True, help="Text column; repeat for several.")
@click.option("--label", multiple=True, required=True, help="Label column; repeat for several.")
@click.option("--test", type=click.Path(path_type=Path), help="File held back for the test.")
@click.option("--name", help="Name of the task [default: the file's].")
@click.option("--force", is_flag=True, help="Overwrite an existing task file.")
def command(
    context: Context,
    file: Path,
    text: tuple[str, ...],
    label: tuple[str, ...],
    test: Path | None,
    name: str | None,
    force: bool,
) -> dict[str, Any]:
    """Write a task file for FILE and say what was seen in it.

    FILE is CSV, TSV, JSONL or Parquet, or one of them with .gz, .zst or .bz2 behind.
    """
    for path in (file, test):
        if path is not None and not path.is_file():
            raise ConfigError(f"{path} does not exist")
    task = name or re.sub(r"[^a-z0-9]+", "_", local_source(file).stem.lower()).strip("_")
    target = context.home.tasks / f"{task}.yaml"
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; use --force to overwrite it or --name for another")
    proposal = propose_task(task, file.resolve(), text=text, labels=label, home=context.home)
    if test is not None:
        proposal.task["data"]["test"] = str(test.resolve())
    parse_task(proposal.task, source=str(target))
    content = yaml.safe_dump(proposal.task, sort_keys=False, allow_unicode=True, width=100)
    write_atomically(target, content.encode())
    for line in proposal.seen:
        click.echo(line)
    click.echo(f"wrote {target}")
    click.echo(f"next: nightmill train {task}")
    return {"task": task, "file": str(target), "seen": list(proposal.seen)}
