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
        (
            head,
            str(values["rows"]),
            _with_interval(values["accuracy"], values["accuracy_interval"]),
            _with_interval(values["macro_f1"], values["macro_f1_interval"]),
            _number(values["majority_accuracy"]),
            _number(values["expected_calibration_error"]),
        )
        for head, values in metrics.items()
    ]
    header = ("head", "held-out records", "accuracy", "macro-F1", "majority", "calibration error")
    return _table(header, rows) if rows else "none were measured"


def _with_interval(value: float, interval: Sequence[float]) -> str:
    low, high = interval
    return f"{value:.3f} (95 %: {low:.3f} to {high:.3f})"


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
