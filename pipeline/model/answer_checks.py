"""What a model's answers on validation records and the labelled rows say of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.model.findings import DataFacts, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

Flags = npt.NDArray[np.bool_]

# Under so many records one answer for all may be chance.
COLLAPSE_ROWS = 20
COLLAPSE_SHARE = 0.95
# Where one label really is that frequent, answering it always is no sign of collapse by itself.
COLLAPSE_TRUTH = 0.80
# A label that is found at least half of the time is missed in all of three records in one of eight
# cases, and must not have been answered wrongly anywhere either.
NEVER_ROWS = 3
NEVER_LISTED = 5
# Fewer left out or doubtful records would hardly have moved the figures.
LEAK_SHARE = 0.01
# Of banking77 as published a linear model doubts 2 %, and 4 % once 3 % of its labels are changed.
SUSPECT_SHARE = 0.03
# Where it agrees less most of its doubts are its own errors: on rotten_tomatoes, where it agrees
# with 73 % of the labels, it doubts 20 %.
TRUSTED_AGREEMENT = 0.8
SUSPECT_ROWS = 10
# Of 27 public sets those in Latin letters have 0 to 0.2 % under an English vocabulary, Thai 37,
# Chinese 63.
UNKNOWN_SHARE = 0.05


@dataclass(frozen=True)
class HeadAnswers:
    """One head's truth and answers on validation records, as flags `(N, L)` of its labels.

    `train_rows` `(L,)` counts the training records of each label.
    """

    head: str
    labels: tuple[str, ...]
    truth: Flags
    predicted: Flags
    train_rows: npt.NDArray[np.int64]


def answer_findings(answers: Sequence[HeadAnswers]) -> list[Finding]:
    """Collapse and labels never predicted; a head that collapsed is not told of twice."""
    return [
        finding
        for head in answers
        for finding in (one_class_collapse(head) or label_never_predicted(head))
    ]


def data_findings(facts: DataFacts) -> list[Finding]:
    """Leakage that was removed, suspected label errors, and words that no piece stands for."""
    return [*leakage(facts), *suspected_labels(facts), *unknown_words(facts)]


def one_class_collapse(answers: HeadAnswers) -> list[Finding]:
    """One answer for nearly all records, where people gave several."""
    rows = len(answers.truth)
    if rows < COLLAPSE_ROWS:
        return []
    common, share = _most_common(answers.predicted)
    truth_share = float((answers.truth == common).all(axis=1).mean())
    if share < COLLAPSE_SHARE or truth_share > COLLAPSE_TRUTH:
        return []
    return [
        Finding(
            kind="one_class_collapse",
            severity="problem",
            evidence=f"head {answers.head!r} answers {_name(common, answers)} to {share:.1%} of "
            f"{rows} validation records, people to {truth_share:.1%}",
            advice="try a lower train.learning_rate, more train.epochs, fewer train.frozen_layers, "
            f"or a larger heads.{answers.head}.loss_weight",
        )
    ]


def label_never_predicted(answers: HeadAnswers) -> list[Finding]:
    """Labels that people gave to validation records, and the model to none of them."""
    truth, predicted = answers.truth.sum(axis=0), answers.predicted.sum(axis=0)
    missed = np.flatnonzero((truth >= NEVER_ROWS) & (predicted == 0)).tolist()
    if not missed:
        return []
    listed = ", ".join(
        f"{answers.labels[place]!r} ({answers.train_rows[place]} training rows, "
        f"{truth[place]} validation rows)"
        for place in missed[:NEVER_LISTED]
    )
    more = f" and {len(missed) - NEVER_LISTED} more" if len(missed) > NEVER_LISTED else ""
    return [
        Finding(
            kind="label_never_predicted",
            severity="warning",
            evidence=f"head {answers.head!r} never answers {len(missed)} of {len(answers.labels)} "
            f"labels: {listed}{more}",
            advice="try train.class_weights=balanced, label more rows of these, or join them with "
            f"others in heads.{answers.head}.labels",
        )
    ]


def leakage(facts: DataFacts) -> list[Finding]:
    """Records left out for standing nearly in a held-out split: figures before that were wrong."""
    told = []
    for pair, count in facts.near_duplicates.items():
        split, _, held = pair.partition("-")
        whole = facts.rows.get(split, 0) + count
        if count and count >= LEAK_SHARE * whole:
            told.append(f"{count} of {whole} {split} records stand nearly in {held}")
    if not told:
        return []
    return [
        Finding(
            kind="leakage",
            severity="warning",
            evidence=f"{'; '.join(told)}; they were left out",
            advice="look for templates or copies in data.labelled; "
            "train.near_duplicate_similarity says how alike is too alike",
        )
    ]


def suspected_labels(facts: DataFacts) -> list[Finding]:
    """Heads with more doubtful labels than a weak model alone would doubt."""
    told = {
        head: f"{count} of {facts.judged[head]} labels of head {head!r}"
        for head, count in facts.label_errors.items()
        if facts.agreement[head] >= TRUSTED_AGREEMENT
        and count >= max(SUSPECT_ROWS, SUSPECT_SHARE * facts.judged[head])
    }
    if not told:
        return []
    return [
        Finding(
            kind="label_errors",
            severity="warning",
            evidence=f"{', '.join(told.values())} look wrong",
            advice="let people look at the records of label_errors.parquet, the surest first; "
            "until then train.label_smoothing=0.1 limits the harm",
        )
    ]


def unknown_words(facts: DataFacts) -> list[Finding]:
    """Training texts of which the model sees a part only as one and the same unknown token."""
    if facts.unknown < UNKNOWN_SHARE:
        return []
    return [
        Finding(
            kind="unknown_words",
            severity="warning",
            evidence=f"the backbone's vocabulary cannot spell {facts.unknown:.1%} of the training "
            "texts' tokens, which are all one token to it",
            advice="choose a train.backbone that reads the language, or teach this one its words: "
            "nightmill pretrain with pretrain.new_tokens",
        )
    ]


def _most_common(predicted: Flags) -> tuple[Flags, float]:
    """The most frequent answer `(L,)`, and its share."""
    rows, counts = np.unique(predicted, axis=0, return_counts=True)
    return rows[counts.argmax()], float(counts.max() / counts.sum())


def _name(common: Flags, answers: HeadAnswers) -> str:
    chosen = [answers.labels[place] for place in np.flatnonzero(common)]
    return ", ".join(map(repr, chosen)) or "no label"
