"""The promotion history of a model: who decided what, when, why, and on what evidence."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Any

import click

from jobs.model_address import parse_name
from jobs.models_tables import (
    digest_cell,
    facts_table,
    gate_cell,
    minute,
    new_console,
    new_table,
    quality_table,
)
from jobs.options import Context, job
from pipeline.engines.registry import Registry
from schemas.errors import ConfigError
from schemas.promotion import champions_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from schemas.promotion import Decision

_MOST_IN_RESULT = 20  # a job's result is small
log = logging.getLogger(__name__)


@job(
    "models history",
    epilog="\b\nExamples:\n"
    "  nightmill models history tickets\n"
    "  nightmill models history tickets --at 2026-11-28\n"
    "  nightmill models history tickets --at 2026-11-28T02:30\n",
)
@click.argument("name")
@click.option("--at", help="Only who was champion on this date or at this time (UTC).")
def show_history(context: Context, name: str, at: str | None) -> dict[str, Any]:
    """Show the decisions about NAME, oldest first; with --at the champion of a date and why.

    On a date on which it changed these are several. Times are UTC where they do not say otherwise.
    """
    name, registry, console = parse_name(name), Registry(context.home), new_console()
    span = None if at is None else parse_moment(at)
    decisions = registry.promotions.history(name)
    _warn_of_other_ways(name, registry.champion(name), decisions)
    if span is not None:
        decisions = champions_between(decisions, *span)
        _print_champions(console, name, str(at), decisions)
    elif decisions:
        console.print(_table(name, decisions))
    else:
        console.print(f"no decision about {name} is on record")
    return {
        "name": name,
        "at": at,
        "decisions": [decision.model_dump(mode="json", exclude={"evidence"})
                      for decision in decisions[-_MOST_IN_RESULT:]],
    }  # fmt: skip


def parse_moment(text: str) -> tuple[dt.datetime, dt.datetime]:
    """The span of a date, or of a moment; UTC unless the text has an offset.

    Raises:
        ConfigError: it is neither.
    """
    try:
        if len(text) == len("2026-11-28"):
            start = dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC)
            return start, start + dt.timedelta(days=1)
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--at: expected YYYY-MM-DD or YYYY-MM-DDTHH:MM, got {text!r}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return moment, moment


def _warn_of_other_ways(name: str, champion: str | None, decisions: Sequence[Decision]) -> None:
    """An alias can be moved in MLflow itself, which leaves no line here."""
    last = next((found for found in reversed(decisions) if found.makes_champion), None)
    if champion != (last and last.version):
        log.warning(
            "the champion of %s is version %s, the last decision on record made it version %s: it "
            "was moved by other means than Nightmill, or before the history began",
            name, champion or "none", last.version if last else "none",
        )  # fmt: skip


def _table(name: str, decisions: Sequence[Decision]) -> Any:
    rows = [
        (
            minute(found), found.action, found.version, found.before or "none",
            digest_cell(found.digest), found.approver, found.reason,
            found.evidence.gates_passed if found.evidence else "",
        )
        for found in decisions
    ]  # fmt: skip
    columns = ("when", "what", "version", "champion before", "digest", "who", "why", "gates passed")
    return new_table(f"decisions about {name}", columns, rows, numbers="version, champion before")


def _print_champions(console: Console, name: str, at: str, decisions: Sequence[Decision]) -> None:
    if not decisions:
        console.print(f"no champion of {name} is on record for {at}: the history begins later")
        return
    for found in decisions:
        console.print(
            f"\n{name} {at}: champion is version {found.version}, {found.action} on "
            f"{minute(found)} by {found.approver} (before: {found.before or 'none'})"
        )
        console.print(f"reason: {found.reason or 'none was given'}")
        _print_evidence(console, found)


def _print_evidence(console: Console, decision: Decision) -> None:
    evidence = decision.evidence
    if evidence is None:
        console.print("no evidence is on record: the model's files could not be read")
        return
    facts = {
        "digest": decision.digest,
        "variant": evidence.variant,
        "training run": evidence.training_run,
        "data digest": evidence.data_digest,
        "code digest": evidence.code or "not kept",
        "taught by": ", ".join(evidence.teachers) or "labels alone",
        "gates passed": evidence.gates_passed,
    }
    console.print(facts_table("evidence", facts))
    console.print(quality_table("held-out records", evidence.heads))
    if evidence.gates:
        rows = [(gate.gate, gate_cell(gate)) for gate in evidence.gates]
        console.print(new_table("gates", ("gate", "measured"), rows))
