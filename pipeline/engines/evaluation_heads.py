"""The part of an evaluation page that one head has: figures, labels, confusions, slices."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pipeline.engines.evaluation_plots import confusion_plot, reliability_plot
from pipeline.engines.page_parts import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.model.comparison import ChampionComparison
    from pipeline.model.evaluation import HeadEvaluation
    from pipeline.model.head_quality import LabelQuality
    from schemas.bundle import LanguageMetrics
    from schemas.paired import PairedResult

_MANY_LABELS = 20  # more would push all else off the page: they open at a click
_BASELINES = {"majority": "always the majority", "tfidf_linear": "linear model over TF-IDF"}
_ACCURACY = {
    "single": "Accuracy is the share of records with the right label.",
    "multi": "Accuracy is the share of yes/no answers that are right, one for each label.",
    "aspect": "Accuracy is the share of aspects with the right answer, none among them.",
}


def head_section(head: HeadEvaluation, champion: ChampionComparison) -> str:
    """All that is known of one head."""
    parts = [
        f"<h2>Head {escape(head.name)}</h2>",
        f'<p class="lead-line">{_in_words(head)}</p>',
        _compared(head, champion),
        *_verdict(champion.heads.get(head.name)),
        '<div class="pair">',
        reliability_plot(
            "Reliability", head.reliability,
            note=f"calibration error {head.metrics.expected_calibration_error:.4f}, "
            f"n = {sum(each.rows for each in head.reliability):,} answers",
        ),
        *_confusion(head),
        "</div>",
        *_top_confusions(head),
        "<h3>By label</h3>",
        _labels(head),
        *_slices(head),
    ]  # fmt: skip
    return "\n".join(parts)


def range_of(interval: tuple[float, float]) -> str:
    """An interval in words."""
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _in_words(head: HeadEvaluation) -> str:
    words = [f"n = {head.metrics.rows:,} records with a known label.", _ACCURACY.get(head.kind, "")]
    if head.exact_match is not None:
        words.append(f"All answers of a record are right in {head.exact_match:.1%} of them.")
    if head.auroc.value is not None:
        words.append(
            f"AUROC, one label against the rest: {head.auroc.value:.4f} (the mean over "
            f"{_labels_in_words(head.auroc.labels)})."
        )
    if head.metrics.inside_kept is not None:
        kept = f"{head.metrics.inside_kept:.1%}"
        words.append(f"Of texts that a label fits {kept} stay with the model.")
    if head.metrics.outside_caught is not None:
        words.append(
            f"Of {head.metrics.outside_rows:,} that none fits {head.metrics.outside_caught:.1%} go "
            f"to people."
        )
    return " ".join(words)


def _labels_in_words(count: int) -> str:
    return "one label" if count == 1 else f"{count} labels"


def _compared(head: HeadEvaluation, champion: ChampionComparison) -> str:
    """The model above what it must beat, all on the same records."""
    metrics = head.metrics
    lines = [
        [
            "this model", f"{metrics.accuracy:.4f}", range_of(metrics.accuracy_interval),
            f"{metrics.macro_f1:.4f}", range_of(metrics.macro_f1_interval),
            f"{head.weighted_f1:.4f}", range_of(head.weighted_f1_interval), f"{metrics.rows:,}",
        ]
    ]  # fmt: skip
    if (paired := champion.heads.get(head.name)) is not None:
        name = f"champion, version {escape(champion.version or '')}"
        lines.append(_bare(name, paired.accuracy, paired.macro_f1, paired.rows))
    lines += [
        _bare(_BASELINES.get(name, name), each["accuracy"], each["macro_f1"], int(each["rows"]))
        for name, each in reversed(head.baselines.items())
    ]
    titles = ["Model", "-Accuracy", "95 %", "-Macro-F1", "95 %", "-Weighted F1", "95 %", "-n"]
    shown = table(titles, lines, kind="compact compared")
    return f'<div class="wide">{shown}</div>{_sampled_note(head)}'


def _bare(name: str, accuracy: float, macro_f1: float, rows: int) -> list[str]:
    return [name, f"{accuracy:.4f}", "", f"{macro_f1:.4f}", "", "", "", f"{rows:,}"]


def _sampled_note(head: HeadEvaluation) -> str:
    fitted = {int(each["train_rows"]) for each in head.baselines.values()}
    if not fitted:
        return ""
    return f'<p class="faint">Baselines are fitted on {max(fitted):,} training records.</p>'


def _verdict(paired: PairedResult | None) -> list[str]:
    if paired is None:
        return []
    mark = {"better": "passed", "worse": "failed"}.get(paired.verdict, "warning")
    name = {"better": "better than the champion", "worse": "worse than the champion"}.get(
        paired.verdict, paired.verdict
    )
    return [
        f'<p><span class="mark {mark}">{name}</span>: macro-F1 '
        f"{paired.macro_f1_gain:+.4f} ({_signed(paired.macro_f1_gain_interval)}), accuracy "
        f"{paired.accuracy_gain:+.4f} ({_signed(paired.accuracy_gain_interval)}), by paired "
        f"bootstrap over n = {paired.rows:,} records. This model alone is right on "
        f"{paired.only_new:,} of them, the champion alone on {paired.only_champion:,} "
        f"(McNemar's exact test: p = {paired.p_value:.3g}).</p>"
    ]


def _signed(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.4f} to {interval[1]:+.4f}"


def _confusion(head: HeadEvaluation) -> Iterable[str]:
    if head.matrix:
        names = [each.label for each in head.labels]
        note = f"rows are true labels, n = {head.metrics.rows:,}"
        yield confusion_plot("Confusions", names, head.matrix, note=note)


def _top_confusions(head: HeadEvaluation) -> Iterable[str]:
    """Where a matrix has no room for names and numbers."""
    if len(head.labels) <= _MANY_LABELS or not head.confusions:
        return
    lines = (
        [escape(each.truth), escape(each.predicted), f"{each.rows:,}", f"{each.share:.1%}"]
        for each in head.confusions
    )
    titles = ["True label", "Answered as", "-Records", "-Share of the label"]
    yield "<h3>Most frequent confusions</h3>"
    yield f'<div class="wide">{table(titles, lines, kind="compact")}</div>'


def _labels(head: HeadEvaluation) -> str:
    """The worst first, since these are what a reader looks for."""
    ordered = sorted(head.labels, key=lambda each: (each.support == 0, each.f1))
    titles = ["Label", "-Precision", "-Recall", "-F1", "", "-Records", "-Answers"]
    shown = table(titles, map(_label_line, ordered), kind="compact")
    if len(ordered) <= _MANY_LABELS:
        return f'<div class="wide">{shown}</div>'
    return (
        f"<details><summary>All {len(ordered)} labels, the worst first</summary>"
        f'<div class="wide">{shown}</div></details>'
    )


def _label_line(each: LabelQuality) -> list[str]:
    figures = [f"{value:.3f}" for value in (each.precision, each.recall, each.f1)]
    if not each.support:  # nothing to find, so nothing was missed
        figures = ["–"] * 3
    return [
        escape(each.label), *figures, _bar(each.f1), f"{each.support:,}", f"{each.predicted:,}"
    ]  # fmt: skip


def _slices(head: HeadEvaluation) -> Iterable[str]:
    for facet, by_value in head.slices.items():
        if len(by_value) < 2:
            continue
        lines = (_slice_line(value, found) for value, found in by_value.items())
        titles = [escape(facet.capitalize()), "-n", "-Accuracy", "95 %", "-Macro-F1", "95 %"]
        yield f"<h3>By {escape(facet)}</h3>"
        yield f'<div class="wide">{table(titles, lines, kind="compact")}</div>'
        if any(found.accuracy is None for found in by_value.values()):
            yield '<p class="faint">Slices with few records are only counted.</p>'


def _slice_line(value: str, found: LanguageMetrics) -> list[str]:
    line = [escape(value), f"{found.rows:,}"]
    for figure, interval in (
        (found.accuracy, found.accuracy_interval),
        (found.macro_f1, found.macro_f1_interval),
    ):
        line.append("–" if figure is None else f"{figure:.4f}")
        line.append("" if interval is None else range_of(interval))
    return line


def _bar(share: float) -> str:
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * share:.2f}" height="10"/></svg>'
    )
