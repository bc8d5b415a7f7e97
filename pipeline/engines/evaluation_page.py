"""A model's evaluation as one page that stands alone: SVG, no script, no other host, no text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pipeline.engines.evaluation_heads import head_section, range_of
from pipeline.engines.evaluation_plots import curve_plot
from pipeline.engines.evaluation_search import search_section
from pipeline.engines.page_parts import percent, table, tiles, whole_page
from pipeline.model.findings import Diagnosis

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.model.evaluation import Evaluation
    from pipeline.model.findings import Finding
    from pipeline.model.label_errors import Suspect

_SPLITS = {"test": "test records", "valid": "validation records, since there are no test records"}


def write_evaluation_page(evaluation: Evaluation, path: Path) -> None:
    """Writes the page; it holds figures, labels and record ids, never a word of a text."""
    title = f"{evaluation.task} {evaluation.run}: evaluation"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead-line">{_in_words(evaluation)}</p>',
        _tiles(evaluation),
        "<h2>Diagnosis</h2>",
        _diagnosis(evaluation),
        *(head_section(head, evaluation.champion) for head in evaluation.heads),
        *_champion_notes(evaluation),
        "<h2>Training</h2>",
        _training(evaluation),
        *([] if evaluation.searched is None else [search_section(evaluation.searched)]),
        "<h2>Suspected label errors</h2>",
        _label_errors(evaluation),
    ]
    path.write_text(whole_page(title, parts, own_style="evaluation_page.css"), encoding="utf-8")


def _in_words(evaluation: Evaluation) -> str:
    learnt = ", ".join(f"{rows:,} {split}" for split, rows in evaluation.rows.items())
    return (
        f"Variant <b>{escape(evaluation.variant)}</b> of {escape(evaluation.backbone)}, as it "
        f"would score at night. Measured on {_SPLITS.get(evaluation.measured_on, 'records')}; "
        f"the run has {learnt} records. Intervals are 95 %, by bootstrap over records."
    )


def _tiles(evaluation: Evaluation) -> str:
    values = {}
    for head in evaluation.heads:
        metrics = head.metrics
        values[f"{head.name}: macro-F1"] = _with_range(metrics.macro_f1, metrics.macro_f1_interval)
        values[f"{head.name}: accuracy"] = _with_range(metrics.accuracy, metrics.accuracy_interval)
    most = max((head.metrics.rows for head in evaluation.heads), default=0)
    return tiles({"Records measured": f"{most:,}", **values})


def _with_range(value: float, interval: tuple[float, float]) -> str:
    return f'{value:.3f} <small class="faint">{range_of(interval)}</small>'


def _diagnosis(evaluation: Evaluation) -> str:
    if evaluation.diagnosis is None:
        return '<p class="faint">The run was fine-tuned before there were diagnoses.</p>'
    findings = evaluation.diagnosis.findings
    if not findings:
        return (
            '<p><span class="mark passed">Nothing stands out.</span> Curves, answers and labelled '
            "rows look as those of a sound run do.</p>"
        )
    return f'<ul class="findings">\n{"".join(map(_finding, findings))}</ul>'


def _finding(finding: Finding) -> str:
    mark = "failed" if finding.severity == "problem" else "warning"
    name = finding.kind.replace("_", " ")
    return (
        f'<li class="{finding.severity}"><span class="mark {mark}">{name}</span>'
        f"<p>{_sentence(finding.evidence)}</p>"
        f'<p class="faint">{_sentence(finding.advice)}</p></li>\n'
    )


def _sentence(words: str) -> str:
    return f"{escape(words[:1].upper() + words[1:])}."


def _champion_notes(evaluation: Evaluation) -> list[str]:
    champion = evaluation.champion
    if champion.version is None and not champion.notes:
        return []
    name = "Champion" if champion.version is None else f"Champion, version {champion.version}"
    notes = " ".join(champion.notes) or "It was measured on the same records, see the heads."
    return [f"<h2>{escape(name)}</h2>", f"<p>{escape(notes)}</p>"]


def _training(evaluation: Evaluation) -> str:
    history = evaluation.history
    if not history:
        return '<p class="faint">No epoch was recorded.</p>'
    epochs = [int(row["epoch"]) for row in history]
    losses = [
        (name, [row[f"{name}_loss"] for row in history])
        for name in ("train", "valid")
        if all(f"{name}_loss" in row for row in history)
    ]
    scores = [("macro-F1", [row["valid_macro_f1"] for row in history])]
    plots = [
        curve_plot("Loss", epochs, losses, best=evaluation.best_epoch),
        curve_plot("Validation macro-F1", epochs, scores, best=evaluation.best_epoch),
    ]
    return f'<div class="pair">{"".join(plots)}</div>\n{_epochs(evaluation)}'


_COLUMNS = {
    "train_loss": ("-Train loss", "{:.4f}"),
    "valid_loss": ("-Valid loss", "{:.4f}"),
    "valid_macro_f1": ("-Macro-F1", "{:.4f}"),
    "grad_norm_mean": ("-Gradient norm", "{:.3g}"),
    "grad_norm_max": ("-Largest", "{:.3g}"),
    "learning_rate": ("-Rate at the end", "{:.2g}"),
    "tokens_per_s": ("-Tokens/s", "{:,.0f}"),
    "padding_share": ("-Padding", "{:.1%}"),
}


def _epochs(evaluation: Evaluation) -> str:
    """A line an epoch; columns that the run did not record are left out."""
    shown = {
        key: column
        for key, column in _COLUMNS.items()
        if any(key in row for row in evaluation.history)
    }
    lines = [
        [
            f"{row['epoch']:.0f}",
            *(f.format(row[k]) if k in row else "" for k, (_, f) in shown.items()),
        ]
        for row in evaluation.history
    ]
    titles = ["-Epoch", *(title for title, _ in shown.values())]
    inner = table(titles, lines, kind="compact")
    return (
        f'<details><summary>All numbers by epoch</summary><div class="wide">{inner}</div></details>'
    )


def _label_errors(evaluation: Evaluation) -> str:
    diagnosis = evaluation.diagnosis or Diagnosis()
    if not diagnosis.judged:
        return (
            '<p class="faint">No head was checked: it takes one with a single label a record and '
            "enough records.</p>"
        )
    told = "; ".join(
        f"head {escape(head)}: {diagnosis.label_errors[head]:,} of n = {rows:,}, the "
        f"model agrees with {percent(diagnosis.agreement[head])} of the labels"
        for head, rows in diagnosis.judged.items()
    )
    words = (
        f"<p>A linear model doubts {evaluation.n_suspects:,} labels that it had not seen "
        f"({told}). The less it agrees, the more of its doubts are errors of its own: people "
        "decide.</p>"
    )
    if not evaluation.suspects:
        return words
    return words + (
        table(
            ["Record", "Head", "Given", "More likely", "-Confidence"],
            map(_suspect, evaluation.suspects),
            kind="compact",
        )
        + '<p class="faint">All of them are in label_errors.parquet beside the run.</p>'
    )


def _suspect(suspect: Suspect) -> list[str]:
    return [
        escape(suspect.record_id), escape(suspect.head), escape(suspect.given),
        escape(suspect.likely), f"{suspect.confidence:.2f}",
    ]  # fmt: skip
