"""The champion alias to a registered version."""

from __future__ import annotations

import getpass
import logging
from typing import Any

import click

from jobs.options import Context, job
from pipeline.engines.registry import CHALLENGER, Registry
from schemas.load import load_task

log = logging.getLogger(__name__)


@job(
    "promote",
    epilog="\b\nExamples:\n"
    "  nightmill promote tickets\n"
    '  nightmill promote tickets --version 3 --reason "better on returns"\n',
)
@click.argument("task")
@click.option("--version", help="Version to promote [default: the challenger].")
@click.option("--approver", default=getpass.getuser, help="Who decided [default: you].")
@click.option("--reason", default="", help="Why; kept in the promotion history.")
def command(
    context: Context, task: str, version: str | None, approver: str, reason: str
) -> dict[str, Any]:
    """Make a registered version of TASK's model the champion; the old one becomes `previous`.

    Scoring that has already started goes on with the version it began with. The decision is kept
    with its evidence, see `nightmill models history`; a version that is the champion already stays
    it, and nothing is added.
    """
    name = load_task(task, context.home).name
    return promote(Registry(context.home), name, version, approver=approver, reason=reason)


def promote(
    registry: Registry, name: str, version: str | None, *, approver: str, reason: str
) -> dict[str, Any]:
    """Makes a version, by default the challenger, the champion; answers the job's result.

    Raises:
        ArtifactError: there is no such model or version.
    """
    version = registry.resolve(name, version or CHALLENGER)
    before = registry.promote(name, version, approver=approver, reason=reason)
    log.info("models:/%s@champion is version %s (was %s)", name, version, before or "none")
    return {"name": name, "version": version, "previous": before}
