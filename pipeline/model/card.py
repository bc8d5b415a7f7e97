"""The model card: what a person should know before trusting a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.bundle import BundleSpec
    from schemas.task import WindowPooling

_LONG_TEXTS: dict[WindowPooling, str] = {
    "mean": "read in overlapping windows and averaged",
    "max": "read in overlapping windows, of which the strongest counts",
    "first": "cut: only their beginning is read",
    "attention": "read in overlapping windows, weighed as the model has learnt to",
}


def model_card(spec: BundleSpec) -> str:
    """Markdown with purpose, quality against FP32 and baselines, gates, and limits."""
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
        "| head | rows | accuracy (95 %) | macro-F1 (95 %) | FP32 macro-F1 | TF-IDF macro-F1 "
        "| ECE | majority |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, metrics in spec.metrics.items():
        lines.append(
            f"| {name} | {metrics.rows} "
            f"| {metrics.accuracy:.4f} ({_range(metrics.accuracy_interval)}) "
            f"| {metrics.macro_f1:.4f} ({_range(metrics.macro_f1_interval)}) "
            f"| {spec.fp32_metrics[name].macro_f1:.4f} | {_linear_f1(spec, name)} "
            f"| {metrics.expected_calibration_error:.4f} | {metrics.majority_accuracy:.4f} |"
        )
    if spec.baseline_metrics:
        lines += [
            "",
            "TF-IDF is a linear model over words and characters, fitted on the same training "
            "records and measured on the same held-out ones.",
        ]
    lines += [*_teachers(spec), *_languages(spec), *_scopes(spec), *_data(spec)]
    lines += ["", "## Labels", ""]
    for name, head in spec.task.heads.items():
        labels = ", ".join(f"`{label}`" for label in head.answer_labels)
        lines.append(
            f"- **{name}** ({head.kind}): {labels}; under confidence {head.review_below} "
            f"a person decides"
        )
    lines += [
        "",
        "## Gates",
        "",
        *([f"{spec.choice}.", ""] if spec.choice else []),
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
        f"{spec.task.window.max_tokens} tokens are {_LONG_TEXTS[spec.task.train.window_pooling]}.",
        "",
    ]
    return "\n".join(lines)


def _linear_f1(spec: BundleSpec, head: str) -> str:
    """Macro-F1 of the linear baseline, a dash in bundles of before there was one."""
    figures = spec.baseline_metrics.get(head, {}).get("tfidf_linear")
    return _or_dash(None if figures is None else figures["macro_f1"])


def _teachers(spec: BundleSpec) -> list[str]:
    """Who taught the model and how much of them it has; nothing to tell where nobody did."""
    if (told := spec.distilled) is None:
        return []
    rows = [
        f"| {name} | {spec.metrics[name].macro_f1:.4f} | {theirs:.4f} | "
        + (f"{spec.metrics[name].macro_f1 / theirs:.1%} |" if theirs else "- |")
        for name, theirs in told.test_macro_f1.items()
    ]
    table = ["| head | macro-F1 | teachers' | kept |", "| --- | --- | --- | --- |", *rows]
    return [
        "",
        "## Teachers",
        "",
        f"Distilled from {', '.join(f'`{teacher}`' for teacher in told.teachers)}"
        + (f", starting from {told.student}" if told.student else "")
        + f". On validation records it keeps {told.kept:.1%} of their macro-F1 "
        f"({told.student_valid_macro_f1:.4f} of {told.teacher_valid_macro_f1:.4f}).",
        *(["", *table] if rows else []),
    ]


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


def _scopes(spec: BundleSpec) -> list[str]:
    """What becomes of texts that no label fits; nothing to tell where no head has a rule."""
    if not spec.scopes:
        return []
    rows = []
    for name, rule in spec.scopes.items():
        found = spec.metrics[name]
        rows.append(
            f"| {name} | {rule.method} | {rule.threshold:.4f} | {_or_dash(found.inside_kept)} "
            f"| {_or_dash(found.outside_caught)} | {found.outside_rows or 0} |"
        )
    return [
        "",
        "## Texts that no label fits",
        "",
        "| head | score | a person decides under | kept | caught | texts outside |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        "Kept is the share of held-out texts inside that stays with the model, caught the share of "
        "those known to be outside that goes to people.",
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
