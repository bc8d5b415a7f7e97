"""Registered models and their versions, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jobs.model_address import find_version, parse_address, parse_name
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
from pipeline.engines.registry import CHALLENGER, CHAMPION, PREVIOUS, Registry

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.engines.registry import Version
    from schemas.bundle import BundleSpec
    from schemas.promotion import Decision

_ALIASES = (CHAMPION, CHALLENGER, PREVIOUS)


@job(
    "models list",
    epilog="\b\nExamples:\n  nightmill models list\n  nightmill models list tickets\n",
)
@click.argument("name", required=False)
def list_models(context: Context, name: str | None) -> dict[str, Any]:
    """List the registered models, or the versions of NAME with their aliases."""
    registry, console = Registry(context.home), new_console()
    if name is not None:
        name = parse_name(name)
        versions = registry.versions(name)
        console.print(_versions(name, versions))
        return {"name": name, "versions": {v.model.version: list(v.aliases) for v in versions}}
    found = {model: registry.versions(model) for model in registry.names()}
    rows = [
        (model, str(len(versions)), *(_holder(versions, alias) for alias in _ALIASES))
        for model, versions in found.items()
    ]
    console.print(new_table("models", ("name", "versions", *_ALIASES), rows, numbers="versions"))
    return {
        "models": {
            model: {alias: v.model.version for v in versions for alias in v.aliases}
            for model, versions in found.items()
        }
    }


@job(
    "models show",
    epilog="\b\nExamples:\n"
    "  nightmill models show tickets\n"
    "  nightmill models show tickets@challenger\n"
    "  nightmill models show tickets/3\n",
)
@click.argument("model", metavar="NAME[@ALIAS|/VERSION]")
def show_model(context: Context, model: str) -> dict[str, Any]:
    """Show a version: where it comes from, how well it answers, gates, labels, decisions.

    Without an alias or a version, the champion, or the newest one where there is none.
    """
    registry, console = Registry(context.home), new_console()
    version = find_version(registry, parse_address(model))
    ref = registry.ref(version.model.name, version.model.version)
    spec = registry.spec(ref)
    decisions = [
        decision
        for decision in registry.promotions.history(ref.name)
        if decision.version == ref.version
    ]
    console.print(facts_table(f"{ref.name} version {ref.version}", _origin(version, spec)))
    console.print(quality_table("held-out records", spec.metrics))
    gates = [(gate.gate, gate_cell(gate)) for gate in spec.gates if gate.variant == spec.variant]
    if gates:
        console.print(new_table("gates", ("gate", "measured"), gates))
    labels = [(name, ", ".join(found.labels)) for name, found in spec.task.label_sets.items()]
    console.print(new_table("labels", ("head", "labels"), labels))
    if decisions:
        console.print(_decisions(decisions))
    return {
        **ref.model_dump(),
        "aliases": list(version.aliases),
        "run_id": version.run_id,
        "training_run": spec.training_run,
        "data_digest": spec.data_digest,
        "macro_f1": {name: metrics.macro_f1 for name, metrics in spec.metrics.items()},
    }


def _versions(name: str, versions: tuple[Version, ...]) -> Table:
    rows = [
        (
            version.model.version, ", ".join(version.aliases), f"{version.created:%Y-%m-%d %H:%M}",
            digest_cell(version.model.digest), version.tags.get("nightmill.decision", ""),
            version.description,
        )
        for version in versions
    ]  # fmt: skip
    columns = ("version", "aliases", "made (UTC)", "digest", "decision", "description")
    return new_table(name, columns, rows, numbers="version")


def _holder(versions: tuple[Version, ...], alias: str) -> str:
    return next((v.model.version for v in versions if alias in v.aliases), "")


def _origin(version: Version, spec: BundleSpec) -> dict[str, str]:
    facts = spec.facts.get(spec.variant)
    teachers = ", ".join(map(str, spec.distilled.teachers)) if spec.distilled else ""
    found = {
        "aliases": ", ".join(version.aliases) or "none",
        "description": version.description,
        "made": f"{version.created:%Y-%m-%d %H:%M} UTC",
        "digest": version.model.digest,
        "variant": f"{spec.variant} ({spec.choice})" if spec.choice else spec.variant,
        "backbone": spec.backbone,
        "taught by": teachers,
        "training run": f"{spec.training_run}, MLflow run {version.run_id}",
        "data digest": spec.data_digest,
        "code digest": version.tags.get("nightmill.code", ""),
        "settings digest": spec.task.digest,
        "cleaner": spec.cleaner_version,
        "size": f"{facts.megabytes:.1f} MB" if facts else "",
        "windows/s, one thread": f"{facts.windows_per_s:,.0f}" if facts else "",
        "input columns": ", ".join(spec.task.data.text_columns),
    }
    return {name: value for name, value in found.items() if value}


def _decisions(decisions: list[Decision]) -> Table:
    rows = [(minute(d), d.action, d.approver, d.reason) for d in decisions]
    return new_table("decisions", ("when", "what", "who", "why"), rows)
