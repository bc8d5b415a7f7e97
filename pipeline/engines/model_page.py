"""A model's file as one page that stands alone: what was tried, what it weighs, why it ships."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pipeline.engines.evaluation_plots import variant_plot
from pipeline.engines.page_parts import table, tiles, whole_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from schemas.bundle import BundleSpec, GateResult, HeadMetrics, VariantFacts
    from schemas.sweep import Sweep
    from schemas.task import Variant

_NONE = '<span class="faint">-</span>'
_NETRON = (
    "<p>The graph can be looked at in Netron, a viewer for model files: install it with "
    "<code>pip install netron</code>, then <code>netron model.onnx</code> in the bundle's folder "
    "opens it in the browser, or open the file in its desktop program. Large models take a while "
    "to draw.</p>"
)


def write_model_page(
    spec: BundleSpec,
    path: Path,
    *,
    sweeps: Sequence[Sweep] = (),
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes the page; `notes` are further lines on where the model comes from, by name."""
    title = f"{spec.task.name} {spec.training_run}: model"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead-line">{escape(spec.choice)}</p>',
        _tiles(spec),
        "<h2>Variants</h2>",
        _variants(spec),
        *_plot(spec),
        *_gates(spec),
        *(part for sweep in sweeps for part in _sweep(sweep)),
        "<h2>Where it comes from</h2>",
        _origin(spec, notes or {}),
        "<h2>The file itself</h2>",
        _NETRON,
    ]
    path.write_text(whole_page(title, parts, own_style="evaluation_page.css"), encoding="utf-8")


def _tiles(spec: BundleSpec) -> str:
    shown = {"Variant": escape(spec.variant)}
    if (facts := spec.facts.get(spec.variant)) is not None:
        shown["File"] = f"{facts.megabytes:.1f} MB"
        shown["Windows/s, one thread"] = f"{facts.windows_per_s:,.0f}"
        shown["95 % of windows within"] = _number(facts.p95_ms, "{:.1f} ms")
    return tiles(shown)


def _variants(spec: BundleSpec) -> str:
    titles = [
        "Variant", "Verdict", "-MB", "-Load, ms", "-Resident, MiB", "-Windows/s", "-p95, ms",
        "-Same answers", "Macro-F1 (95 %)", "ECE",
    ]  # fmt: skip
    order = [*spec.task.compress.prefer, *spec.facts]
    lines = [
        _variant(spec, variant, spec.facts[variant])
        for variant in dict.fromkeys(order)
        if variant in spec.facts
    ]
    features = ", ".join(spec.host.cpu_features) or "none that matter"
    return (
        f'<div class="wide">{table(titles, lines, kind="compact narrow")}</div>'
        f'<p class="faint">Measured with ONNX Runtime {escape(spec.host.onnxruntime)} on a CPU '
        f"with {escape(features)}: one thread, one window a call. Resident is the most that a "
        "process holds which only loads the file. Answers are compared with PyTorch's, of the head "
        "where fewest are the same; quality is of validation records, on which the variant was "
        "chosen.</p>"
    )


def _variant(spec: BundleSpec, variant: Variant, facts: VariantFacts) -> list[str]:
    heads = spec.variant_metrics.get(variant, {})
    alike = [
        gate.value
        for gate in spec.gates
        if gate.variant == variant and gate.gate.startswith("label_agreement.")
    ]
    return [
        f"<b>{escape(variant)}</b>", _verdict(spec, variant), f"{facts.megabytes:.1f}",
        _number(facts.load_ms, "{:.0f}"), _number(facts.resident_mib, "{:.0f}"),
        f"{facts.windows_per_s:,.0f}", _number(facts.p95_ms, "{:.1f}"),
        f"{min(alike):.2%}" if alike else _NONE,
        "<br>".join(_by_head(heads)) or _NONE,
        "<br>".join(f"{m.expected_calibration_error:.3f}" for m in heads.values()) or _NONE,
    ]  # fmt: skip


def _by_head(heads: Mapping[str, HeadMetrics]) -> Iterator[str]:
    for name, metrics in heads.items():
        low, high = metrics.macro_f1_interval
        yield (
            f"{escape(name)} {metrics.macro_f1:.3f} "
            f'<span class="faint">{low:.3f} to {high:.3f}</span>'
        )


def _verdict(spec: BundleSpec, variant: Variant) -> str:
    failed = [gate for gate in spec.gates if gate.variant == variant and not gate.passed]
    if failed:
        told = "<br>".join(escape(str(gate)) for gate in failed)
        return f'<span class="mark failed">failed</span> {told}'
    if variant == spec.variant:
        return '<span class="mark passed">ships</span>'
    asked = variant in spec.task.compress.prefer
    return "passed, less preferred" if asked else "passed, not in compress.prefer"


def _plot(spec: BundleSpec) -> Iterator[str]:
    points = [
        (variant, facts.megabytes, _mean_f1(heads), facts.windows_per_s)
        for variant, facts in spec.facts.items()
        if (heads := spec.variant_metrics.get(variant))
    ]
    if len(points) > 1:
        yield variant_plot("Size, quality and speed", points, chosen=spec.variant)


def _mean_f1(heads: Mapping[str, HeadMetrics]) -> float:
    return sum(metrics.macro_f1 for metrics in heads.values()) / len(heads)


def _gates(spec: BundleSpec) -> Iterator[str]:
    lines = [_gate(gate) for gate in spec.gates]
    inner = table(["Variant", "Gate", "-Value", "-Rule", "Verdict"], lines, kind="compact")
    yield (
        f'<details><summary>All gates ({len(lines)})</summary><div class="wide">{inner}</div>'
        "</details>"
    )


def _gate(gate: GateResult) -> list[str]:
    verdict = "passed" if gate.passed else "failed"
    return [
        escape(gate.variant), escape(gate.gate), f"{gate.value:.5g}",
        f"{escape(gate.rule)} {gate.threshold:.5g}",
        f'<span class="mark {verdict}">{verdict}</span>',
    ]  # fmt: skip


def _sweep(sweep: Sweep) -> Iterator[str]:
    yield f"<h2>Which parts suffer: {escape(sweep.variant)}</h2>"
    lines = [
        [
            escape(row.name), f"{row.kl:.4g}", f"{row.agreement:.2%}", f"{row.macro_f1_drop:+.4f}",
            "FP32" if row.kept else "quantized",
        ]
        for row in sweep.rows
    ]  # fmt: skip
    titles = ["Part", "-KL, nats", "-Same answers", "-Macro-F1 lost", "Ships as"]
    yield table(titles, lines, kind="compact")
    yield (
        f'<p class="faint">Each part quantized alone, the most harmful first, on {sweep.texts:,} '
        "validation texts.</p>"
    )


def _origin(spec: BundleSpec, notes: Mapping[str, str]) -> str:
    told = {"Backbone": spec.backbone, "Training run": spec.training_run,
            "Data": spec.data_digest[:12], "Bundle": spec.digest[:12]}  # fmt: skip
    if (taught := spec.distilled) is not None:
        told["Teachers"] = ", ".join(map(str, taught.teachers))
        told["Kept of the teachers' macro-F1"] = f"{taught.kept:.1%} on validation records"
    if (export := spec.export) is not None:
        exporters = ", ".join(f"{name} {version}" for name, version in export.exporters.items())
        told["Exported"] = f"opset {export.opset}, {exporters}"
        told["Operators as this host runs them"] = ", ".join(
            f"{count} {name}" for name, count in export.operators.items()
        )
        told["Parts kept in FP32"] = ", ".join(export.kept_fp32) or "none"
    lines = [[escape(name), escape(value)] for name, value in (told | dict(notes)).items()]
    return table(["What", "Which"], lines, kind="compact")


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else form.format(value)
