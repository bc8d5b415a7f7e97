"""The model card: what a person should know before trusting a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.bundle import BundleSpec


def model_card(spec: BundleSpec) -> str:
    """Markdown with purpose, quality against FP32 and majority, gates, and limits."""
    lines = [
        f"# {spec.task.name}",
        "",
        spec.task.description or "A text classifier.",
        "",
        f"Variant `{spec.variant}` of `{spec.backbone}`, trained by run `{spec.training_run}` on "
        f"data `{spec.data_digest[:12]}`; text cleaner `{spec.cleaner_version}`.",
        "",
        "## Quality on held-out records",
        "",
        "| head | rows | accuracy (95 %) | macro-F1 (95 %) | FP32 macro-F1 | ECE | majority |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, metrics in spec.metrics.items():
        lines.append(
            f"| {name} | {metrics.rows} "
            f"| {metrics.accuracy:.4f} ({_range(metrics.accuracy_interval)}) "
            f"| {metrics.macro_f1:.4f} ({_range(metrics.macro_f1_interval)}) "
            f"| {spec.fp32_metrics[name].macro_f1:.4f} "
            f"| {metrics.expected_calibration_error:.4f} | {metrics.majority_accuracy:.4f} |"
        )
    lines += [*_languages(spec), *_data(spec), "", "## Labels", ""]
    for name, head in spec.task.heads.items():
        labels = ", ".join(f"`{label}`" for label in head.labels)
        lines.append(
            f"- **{name}** ({head.kind}): {labels}; under confidence {head.review_below} "
            f"a person decides"
        )
    lines += [
        "",
        "## Gates",
        "",
        "| variant | gate | value | rule | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for gate in spec.gates:
        verdict = "passed" if gate.passed else "**failed**"
        lines.append(
            f"| {gate.variant} | {gate.gate} | {gate.value:.5g} "
            f"| {gate.rule} {gate.threshold:.5g} | {verdict} |"
        )
    features = ", ".join(spec.host.cpu_features) or "none that matter"
    lines += [
        "",
        f"Measured with ONNX Runtime {spec.host.onnxruntime} on a CPU with {features}.",
        "",
        "## Limits",
        "",
        "The model has seen records like those it was trained on; on another source, language or "
        "product its confidence says less. Texts longer than "
        f"{spec.task.window.max_tokens} tokens are read in overlapping windows and averaged.",
        "",
    ]
    return "\n".join(lines)


def _languages(spec: BundleSpec) -> list[str]:
    """Quality by language; nothing to tell where there is only one."""
    rows = [
        f"| {name} | {lang} | {metrics.rows} | {_or_dash(metrics.accuracy)} "
        f"| {_or_dash(metrics.accuracy_interval)} | {_or_dash(metrics.macro_f1)} "
        f"| {_or_dash(metrics.macro_f1_interval)} |"
        for name, head in spec.metrics.items()
        if len(head.by_lang) > 1
        for lang, metrics in head.by_lang.items()
    ]
    if not rows:
        return []
    return [
        "",
        "## Quality by language",
        "",
        "| head | language | rows | accuracy | 95 % | macro-F1 | 95 % |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        "Languages with few records are only counted; `und` is text too short to tell.",
    ]


def _data(spec: BundleSpec) -> list[str]:
    """What was found in the labelled data that a reader of the figures should know."""
    leaks = [
        f"- {count} records of {pair.replace('-', ' left out for standing nearly in ')}"
        for pair, count in spec.near_duplicates.items()
    ]
    conflicts = [
        f"- {count} texts have more than one label of **{head}**; no model gets all of them right"
        for head, count in spec.conflicting_labels.items()
    ]
    return ["", "## Labelled data", "", *leaks, *conflicts] if leaks or conflicts else []


def _or_dash(value: float | tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    return _range(value) if isinstance(value, tuple) else f"{value:.4f}"


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"
