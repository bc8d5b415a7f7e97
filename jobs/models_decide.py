"""Decisions about registered models, each a line of the promotion history."""

from __future__ import annotations

import getpass
import logging
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from jobs.model_address import parse_name
from jobs.options import Context, job
from jobs.promote import promote
from pipeline.engines.registry import CHALLENGER, Registry

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = "nobody"  # where no answer came in time
P = ParamSpec("P")
log = logging.getLogger(__name__)


def _decision_options(function: Callable[P, Any]) -> Callable[P, Any]:
    """`--approver` and `--reason`."""
    approver = click.option(
        "--approver", default=getpass.getuser, help="Who decided [default: you]."
    )
    reason = click.option("--reason", default="", help="Why; kept in the promotion history.")
    return approver(reason(function))


@job(
    "models promote",
    epilog="\b\nExamples:\n"
    "  nightmill models promote tickets\n"
    '  nightmill models promote tickets --version 3 --reason "better on returns"\n',
)
@click.argument("name")
@click.option("--version", help="Version or alias to promote [default: the challenger].")
@_decision_options
def promote_model(
    context: Context, name: str, version: str | None, approver: str, reason: str
) -> dict[str, Any]:
    """Make a version of NAME the champion; the old one becomes `previous`.

    The same as `nightmill promote`, also for a model whose task file is not here.
    """
    registry = Registry(context.home)
    return promote(registry, parse_name(name), version, approver=approver, reason=reason)


@job(
    "models reject",
    epilog="\b\nExamples:\n"
    '  nightmill models reject tickets --reason "worse on returns"\n'
    '  nightmill models reject tickets --version 3 --reason "no answer within 24 h"\n',
)
@click.argument("name")
@click.option("--version", help="Version or alias to reject [default: the challenger].")
@_decision_options
def reject_model(
    context: Context, name: str, version: str | None, approver: str, reason: str
) -> dict[str, Any]:
    """Keep on record that a version of NAME is not to be the champion, and why.

    It stays registered, with its alias, and may be promoted later on. The same answer again adds
    nothing. An empty --approver stands for nobody, as where no answer came in time.
    """
    name, registry = parse_name(name), Registry(context.home)
    model = registry.ref(name, registry.resolve(name, version or CHALLENGER))
    decision = registry.promotions.reject(model, approver=approver or NOBODY, reason=reason)
    if decision is None:
        log.info("models:/%s/%s was rejected already, for this reason", name, model.version)
    else:
        log.info("models:/%s/%s is rejected by %s", name, model.version, decision.approver)
    champion = registry.champion(name)
    return {"name": name, "version": model.version, "champion": champion}


@job(
    "models rollback",
    epilog="\b\nExample:\n"
    '  nightmill models rollback tickets --reason "billing tickets go astray"\n',
)
@click.argument("name")
@_decision_options
def roll_back(context: Context, name: str, approver: str, reason: str) -> dict[str, Any]:
    """Make the `previous` version of NAME the champion again.

    The one that was champion becomes `previous`. A second rollback is refused: it would bring back
    what was rolled back. `nightmill models promote` does that, where it is meant.
    """
    name, registry = parse_name(name), Registry(context.home)
    decision = registry.promotions.roll_back(
        name, lambda version: registry.ref(name, version), approver=approver, reason=reason
    )
    log.info(
        "models:/%s@champion is version %s again (was %s)", name, decision.version, decision.before
    )
    return {"name": name, "version": decision.version, "previous": decision.before}
