"""Two versions of a model side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jobs.model_address import parse_name
from jobs.models_tables import gate_cell, interval, new_console, new_table
from jobs.options import Context, job
from pipeline.bundle_difference import compare_bundles
from pipeline.engines.registry import Registry

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.bundle_difference import BundleDifference, FigureDifference, LabelDifference

_MAX_CELL_CHARS = 200
Sides = tuple[str, str]


@job(
    "models diff",
    epilog="\b\nExamples:\n"
    "  nightmill models diff tickets champion challenger\n"
    "  nightmill models diff tickets 3 4\n",
)
@click.argument("name")
@click.argument("first")
@click.argument("second")
def diff_models(context: Context, name: str, first: str, second: str) -> dict[str, Any]:
    """Compare two versions of NAME, each an alias or a number: what differs, and what it brings.

    Intervals that overlap say that nobody knows which of the two is better. The retraining's
    evaluation page compares them record by record, which tells more.
    """
    name, registry = parse_name(name), Registry(context.home)
    models = [registry.ref(name, registry.resolve(name, which)) for which in (first, second)]
    found = compare_bundles(*(registry.spec(model) for model in models))
    codes = [
        registry.version(name, model.version).tags.get("nightmill.code", "") for model in models
    ]
    sides: Sides = (f"version {models[0].version}", f"version {models[1].version}")
    _print(name, sides, found, codes)
    return {
        "name": name,
        "versions": [model.version for model in models],
        "digests": [model.digest for model in models],
        "settings": sorted(found.settings),
        "labels_changed": [change.head for change in found.labels],
        "figures": {
            f"{figure.head}.{figure.figure}": {
                "values": list(figure.values),
                "overlap": figure.overlap,
            }
            for figure in found.figures
        },
    }


def _print(name: str, sides: Sides, found: BundleDifference, codes: list[str]) -> None:
    console = new_console()
    columns = ("", *sides)
    origins = [(key, *values) for key, values in found.origins.items()]
    origins.insert(-1, ("code digest", codes[0] or "not kept", codes[1] or "not kept"))
    console.print(new_table(name, columns, origins))
    if found.settings:
        rows = [(key, *map(_cell, values)) for key, values in found.settings.items()]
        console.print(new_table("settings that differ", ("key", *sides), rows))
    if found.labels:
        console.print(_labels(found.labels))
    console.print(_figures(sides, found.figures))
    facts = [(key, *map(_number, values)) for key, values in found.facts.items() if any(values)]
    if facts:
        console.print(new_table("size and speed where each was made", columns, facts))
    gates = [(key, *map(gate_cell, values)) for key, values in found.gates.items()]
    if gates:
        console.print(new_table("gates", ("gate", *sides), gates))


def _labels(changes: tuple[LabelDifference, ...]) -> Table:
    rows = [
        (change.head, ", ".join(change.added), ", ".join(change.removed),
         "another order" if change.reordered else "")
        for change in changes
    ]  # fmt: skip
    return new_table("labels that differ", ("head", "added", "removed", "otherwise"), rows)


def _figures(sides: Sides, figures: tuple[FigureDifference, ...]) -> Table:
    rows = [
        (
            found.head, found.figure.replace("macro_f1", "macro-F1"),
            *(f"{value:.3f} ({interval(bounds)})"
              for value, bounds in zip(found.values, found.intervals, strict=True)),
            f"{found.values[1] - found.values[0]:+.3f}",
            "overlap" if found.overlap else "do not overlap",
        )
        for found in figures
    ]  # fmt: skip
    columns = ("head", "figure", *sides, "change", "95 % intervals")
    return new_table("held-out records of each", columns, rows, numbers="change")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CELL_CHARS else f"{text[: _MAX_CELL_CHARS - 1]}…"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.1f}"
