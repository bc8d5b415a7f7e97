"""The page a person reads before approving a promotion."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from dags.retraining.markdown import escaped, number, signed, table, with_interval
from schemas.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.evidence import HeadEvidence, LabelChange, ModelFigures


def evidence(
    bundled: Mapping[str, Any],
    registered: Mapping[str, Any],
    params: Mapping[str, Any],
) -> str:
    """Markdown: the new model against the champion, and what either answer does."""
    found = Evidence.model_validate(bundled["evidence"])
    parts = (
        _opening(found, registered),
        _reason(params.get("reason") or ""),
        _stale(found, registered),
        _section("How well it answers", _heads(found)),
        _section("Languages, the worst first", _slices(found)),
        _section("What it is and what it costs", _figures(found)),
        _section("Labels that changed", _labels(found.labels)),
        _section("Gates", _gates(found)),
        _section("Notes", _notes(found)),
        _section("Where to look", _places(found, registered)),
        "**Approve** makes it the champion that scores from the next run on. **Reject** leaves the "
        "champion as it is and keeps this version as challenger, with your reason. No answer "
        f"within {params['approval_hours']} h is a rejection by nobody.",
    )
    return "\n\n".join(part for part in parts if part)


def _opening(found: Evidence, registered: Mapping[str, Any]) -> str:
    name, version = registered["name"], registered["version"]
    against = f"against champion version {found.champion_version}"
    if found.champion_version is None:
        against = "the task has no champion yet, so that it would be the first model to score"
    return f"**{name} version {version}** ({found.new.variant}), {against}"


def _reason(reason: str) -> str:
    told = escaped(reason)
    return f"Why it was made: {told}" if told else ""


def _stale(found: Evidence, registered: Mapping[str, Any]) -> str:
    """A warning where somebody has promoted another model since the two were compared."""
    now = registered.get("champion")
    if now in (found.champion_version, registered["version"]):
        return ""
    return (
        f"**The champion is version {now} by now**, and not the one below: start the retraining "
        f"again to compare with it, or look at both in MLflow."
    )


def _section(title: str, body: str) -> str:
    return f"#### {title}\n\n{body}" if body else ""


def _heads(found: Evidence) -> str:
    rows = [_head(head, alone=found.champion_version is None) for head in found.heads]
    header = (
        "head", "records", "macro-F1", "champion", "difference", "verdict", "accuracy", "champion",
        "majority", "calibration error",
    )  # fmt: skip
    if not rows:
        return "nothing was measured"
    told = table(*_filled(header, rows)) + _left_out(found, "heads")
    if not any(head.paired for head in found.heads):
        return told
    return (
        f"{told}\n\nIn brackets: 95 % intervals, by bootstrap. Both models answered the same "
        "records; *p* is McNemar's exact test on those that one of them alone gets right."
    )


def _head(head: HeadEvidence, *, alone: bool) -> tuple[str, ...]:
    paired = head.paired
    compared = ("", "", "" if alone else "not compared", "")
    if paired is not None:
        compared = (
            f"{paired.macro_f1:.3f}",
            f"{signed(paired.macro_f1_gain)} "
            f"({' to '.join(map(signed, paired.macro_f1_gain_interval))})",
            f"{paired.verdict}; only new right {paired.only_new}, only champion "
            f"{paired.only_champion}, p {paired.p_value:.2g}",
            f"{paired.accuracy:.3f}",
        )
    return (
        head.head,
        str(head.rows),
        with_interval(head.macro_f1, head.macro_f1_interval),
        *compared[:3],
        with_interval(head.accuracy, head.accuracy_interval),
        compared[3],
        number(head.majority_accuracy),
        number(head.calibration_error),
    )


def _slices(found: Evidence) -> str:
    rows = [
        (
            part.head,
            part.lang,
            str(part.rows),
            with_interval(part.macro_f1, part.macro_f1_interval),
            "" if part.champion_macro_f1 is None else f"{part.champion_macro_f1:.3f}",
        )
        for part in found.slices
    ]
    header = ("head", "language", "records", "macro-F1", "champion, on its own records")
    return table(*_filled(header, rows)) + _left_out(found, "slices") if rows else ""


def _filled(
    header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The columns that have anything in them: without a champion there is nothing beside it."""
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [header[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _figures(found: Evidence) -> str:
    models = [found.new, *([found.champion] if found.champion else [])]
    rows: list[Sequence[str]] = [
        (name, *(str(read(model)) for model in models)) for name, read in _FIGURES.items()
    ]
    learnt = ", ".join(f"{count} {split}" for split, count in found.rows.items())
    told = table(("", "new", "champion")[: 1 + len(models)], rows)
    return f"{told}\n\nRecords of the new one: {learnt or 'not counted'}."


_FIGURES: dict[str, Callable[[ModelFigures], str]] = {
    "variant": lambda model: model.variant,
    "size, MB": lambda model: number(model.megabytes),
    "windows/s on one thread": lambda model: number(model.windows_per_s),
    "p95 of a window, ms": lambda model: number(model.p95_ms),
    "measured on": lambda model: model.host,
    "backbone": lambda model: escaped(model.backbone),
    "learnt from": lambda model: ", ".join(map(escaped, model.teachers)) or "labels alone",
    "training run": lambda model: escaped(model.training_run),
    "data": lambda model: f"`{model.data_digest[:12]}`",
    "bundle": lambda model: f"`{model.digest[:12]}`",
    "weights": lambda model: f"`{model.weights_digest[:12]}`",
}  # fmt: skip


def _labels(changes: Sequence[LabelChange]) -> str:
    rows = [
        (each.head, _names(each.added, each.n_added), _names(each.removed, each.n_removed))
        for each in changes
    ]
    return table(("head", "new labels", "gone"), rows) if rows else ""


def _names(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(map(escaped, names)) + more


def _gates(found: Evidence) -> str:
    """What failed, as a table; what passed, as a count: a page of it would hide the buttons."""
    if not found.gates:
        return "none were measured"
    failed = [
        (gate.variant, gate.gate, number(gate.value), f"{gate.rule} {number(gate.threshold)}")
        for gate in found.gates
        if not gate.passed
    ]
    passed = Counter(gate.variant for gate in found.gates if gate.passed)
    told = ", ".join(f"{count} of `{variant}`" for variant, count in passed.items())
    parts = [
        table(("variant", "failed gate", "value", "asked"), failed) if failed else "",
        f"Passed: {told}; all values are in the log of `bundle`." if told else "",
        f"Ships: {escaped(found.choice)}" if found.choice else "",
    ]
    left_out = _left_out(found, "gates").strip()
    return "\n\n".join(part for part in (*parts, left_out) if part)


def _notes(found: Evidence) -> str:
    return "\n".join(f"- {escaped(note)}" for note in found.notes)


def _places(found: Evidence, registered: Mapping[str, Any]) -> str:
    run = f"MLflow run `{registered['run_id']}`, artefacts under `evaluation`"
    if re.match(r"https?://", address := str(registered.get("page") or "")):
        run = f"[MLflow run]({address}) `{registered['run_id']}`, artefacts under `evaluation`"
    return "\n".join([f"- {run}", *(f"- {name}: `{path}`" for name, path in found.pages.items())])


def _left_out(found: Evidence, table_name: str) -> str:
    count = found.left_out.get(table_name)
    return f"\n\nand {count} more rows in `evidence.json`" if count else ""
