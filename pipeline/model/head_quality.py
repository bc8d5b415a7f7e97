"""One head looked at closely: by label, by confusion, by confidence, by rank of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from pipeline.heads import confidences, flags_of, label_scores, predicted_labels
from pipeline.model.labelled import known_rows
from schemas.manifest import Document

if TYPE_CHECKING:
    from pipeline.heads import HeadSlice

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Count = Annotated[int, Field(ge=0)]

_BINS = 10  # for the eye; the calibration error itself has finer ones, see `metrics`
_TOP_CONFUSIONS = 15


class LabelQuality(Document):
    """One label: `support` records have it, `predicted` are answered with it."""

    label: str
    precision: float
    recall: float
    f1: float
    support: Count
    predicted: Count


class Confusion(Document):
    """How many records with one label are answered with another; `share` is of the first's."""

    truth: str
    predicted: str
    rows: Count
    share: float


class Bin(Document):
    """Answers whose confidence is about `confidence`, and which share of them is right."""

    rows: Count
    confidence: float
    accuracy: float


class Auroc(Document):
    """Mean area under the ROC curve over the `labels` that some records have and some have not.

    Null where there is no such label.
    """

    value: float | None
    labels: Count


def known_answers(
    scores: Floats, target: npt.NDArray[Any], head: HeadSlice
) -> tuple[Integers, Integers, Floats]:
    """Truth, prediction and scores `(N, L)` of the records whose label is known.

    Truth and prediction are what `predicted_labels` makes of the head's kind, as integers.
    """
    known = known_rows(target)
    kept = scores[known]
    return target[known].astype(np.int64), predicted_labels(kept, head).astype(np.int64), kept


def label_quality(
    truth: Integers, predicted: Integers, head: HeadSlice
) -> tuple[LabelQuality, ...]:
    """Precision, recall and F1 of every label, in the order of the task file."""
    labels = head.config.answer_labels
    # Two columns at least, or scikit-learn would take flags of one label for labels 0 and 1.
    marks = [np.pad(flags_of(values, head), ((0, 0), (0, 1))) for values in (truth, predicted)]
    precision, recall, f1, support = precision_recall_fscore_support(*marks, zero_division=0)
    answered = marks[1].sum(axis=0)
    return tuple(
        LabelQuality(
            label=label, precision=float(precision[i]), recall=float(recall[i]), f1=float(f1[i]),
            support=int(support[i]), predicted=int(answered[i]),
        )
        for i, label in enumerate(labels)
    )  # fmt: skip


def confusion_counts(truth: Integers, predicted: Integers, n_labels: int) -> Integers:
    """Records `(L, L)` by true label and by answer, for one label a record."""
    table = np.zeros((n_labels, n_labels), dtype=np.int64)
    np.add.at(table, (truth, predicted), 1)
    return table


def top_confusions(counts: Integers, labels: tuple[str, ...]) -> tuple[Confusion, ...]:
    """The most frequent wrong answers, of equal ones the first by label."""
    wrong = counts - np.diag(np.diag(counts))
    rows = wrong.sum(axis=1) + np.diag(counts)
    places = np.argsort(-wrong, axis=None, kind="stable")[:_TOP_CONFUSIONS]
    pairs = zip(*np.unravel_index(places, wrong.shape), strict=True)
    return tuple(
        Confusion(
            truth=labels[i], predicted=labels[j], rows=int(wrong[i, j]),
            share=float(wrong[i, j] / rows[i]),
        )
        for i, j in pairs
        if wrong[i, j]
    )  # fmt: skip


def auroc(truth: Integers, scores: Floats, head: HeadSlice) -> Auroc:
    """One label against the rest, the mean over labels: how well scores rank, at any threshold."""
    marks, by_label = flags_of(truth, head), label_scores(scores, head)
    tells = [i for i in range(marks.shape[1]) if 0 < marks[:, i].sum() < len(marks)]
    areas = [roc_auc_score(marks[:, i], by_label[:, i]) for i in tells]
    return Auroc(value=float(np.mean(areas)) if areas else None, labels=len(areas))


def reliability(
    truth: Integers, predicted: Integers, scores: Floats, head: HeadSlice
) -> tuple[Bin, ...]:
    """Bins of equal width over the confidence of answers, each yes or no of a `multi` head."""
    confidence = confidences(scores, head).ravel()
    correct = (truth == predicted).ravel()
    places = np.clip((confidence * _BINS).astype(int), 0, _BINS - 1)
    return tuple(
        Bin(
            rows=int((places == i).sum()),
            confidence=float(confidence[places == i].mean()),
            accuracy=float(correct[places == i].mean()),
        )
        for i in np.unique(places)
    )
