"""The page a person reads before approving a promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def evidence(bundled: Mapping[str, Any], registered: Mapping[str, Any]) -> str:
    """Markdown with what was registered, how well it answers, and which gates it passed."""
    return "\n\n".join(
        (
            f"**{registered['name']} version {registered['version']}**, "
            f"variant `{bundled['variant']}`, bundle `{str(bundled['digest'])[:12]}`, "
            f"MLflow run `{registered['run_id']}`",
            "#### How well it answers\n\n" + _metrics(bundled.get("metrics", {})),
            "#### Gates\n\n" + _gates(bundled.get("gates", ())),
            "*Approve* makes it the champion that scores tonight; *Reject* leaves the present "
            "one, and so does no answer within a day.",
        )
    )


def _metrics(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (head, name, _number(value))
        for head, values in metrics.items()
        for name, value in values.items()
    ]
    return _table(("head", "metric", "value"), rows) if rows else "none were measured"


def _gates(gates: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            gate["variant"],
            gate["gate"],
            _number(gate["value"]),
            _number(gate["threshold"]),
            "passed" if gate["passed"] else "**FAILED**",
        )
        for gate in gates
    ]
    header = ("variant", "gate", "value", "threshold", "outcome")
    return _table(header, rows) if rows else "none were measured"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
