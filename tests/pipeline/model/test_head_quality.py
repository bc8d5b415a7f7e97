from __future__ import annotations

import numpy as np
import pytest

from pipeline.heads import HeadSlice
from pipeline.model.head_quality import (
    auroc,
    confusion_counts,
    known_answers,
    label_quality,
    reliability,
    top_confusions,
)
from schemas.task import HeadConfig

LABELS = ("a", "b", "c")
SINGLE = HeadSlice("q", HeadConfig(column="q", labels=LABELS), 0)
MULTI = HeadSlice("t", HeadConfig(kind="multi", column="t", labels=("x", "y")), 0)
ASPECT = HeadSlice(
    "s", HeadConfig(kind="aspect", column="s", labels=("bad", "good"), aspects=("food",)), 0
)
TRUTH, PREDICTED = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])


def test_known_answers_leave_out_what_is_not_known() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.9, 0.1, 0.0]])
    truth, predicted, kept = known_answers(scores, np.array([1, -100]), SINGLE)
    assert (truth.tolist(), predicted.tolist(), kept.tolist()) == ([1], [1], [[0.1, 0.7, 0.2]])
    target = np.array([[np.nan, np.nan], [1, 0]], dtype=np.float32)
    truth, predicted, kept = known_answers(np.array([[0.1, 0.2], [0.6, 0.5]]), target, MULTI)
    assert (truth.tolist(), predicted.tolist()) == ([[1, 0]], [[1, 1]])
    choice = np.array([[2.0], [np.nan]], dtype=np.float32)
    truth, predicted, _ = known_answers(np.array([[0.1, 0.6, 0.3], [1, 0, 0]]), choice, ASPECT)
    assert (truth.tolist(), predicted.tolist()) == ([[2]], [[1]])


def test_quality_by_label_by_hand() -> None:
    a, b, c = label_quality(TRUTH, PREDICTED, SINGLE)
    assert (a.precision, a.recall, a.support, a.predicted) == (1.0, pytest.approx(2 / 3), 3, 2)
    assert (b.precision, b.recall, b.f1, b.support) == (0.5, 0.5, 0.5, 2)
    assert (c.label, c.precision, c.recall, c.f1) == ("c", 0.5, 1.0, pytest.approx(2 / 3))


def test_quality_by_label_of_flags_and_aspects() -> None:
    x, y = label_quality(np.array([[1, 0], [1, 1]]), np.array([[1, 1], [0, 1]]), MULTI)
    assert (x.precision, x.recall, x.support, x.predicted) == (1.0, 0.5, 2, 1)
    assert (y.precision, y.recall, y.support, y.predicted) == (0.5, 1.0, 1, 2)
    bad, good = label_quality(np.array([[2], [0], [1]]), np.array([[2], [1], [1]]), ASPECT)
    assert (bad.label, bad.precision, bad.recall) == ("food:bad", 0.5, 1.0)
    assert (good.label, good.precision, good.recall) == ("food:good", 1.0, 1.0)


def test_one_label_alone_has_one_line() -> None:
    head = HeadSlice("t", HeadConfig(kind="multi", column="t", labels=("x",)), 0)
    (x,) = label_quality(np.array([[1], [0]]), np.array([[1], [1]]), head)
    assert (x.precision, x.recall, x.support, x.predicted) == (0.5, 1.0, 1, 2)


def test_confusions_by_hand() -> None:
    counts = confusion_counts(TRUTH, PREDICTED, 3)
    assert counts.tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 1]]
    first, second = top_confusions(counts, LABELS)
    assert (first.truth, first.predicted, first.rows) == ("a", "b", 1)
    assert first.share == pytest.approx(1 / 3)
    assert (second.truth, second.predicted, second.share) == ("b", "c", 0.5)
    assert top_confusions(np.diag([3, 2, 1]), LABELS) == ()


def test_auroc_is_of_labels_that_some_have_and_some_have_not() -> None:
    scores = np.array([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    found = auroc(np.array([0, 0, 1, 1]), scores, SINGLE)
    # Label a ranks 3 of 4 pairs right, b too; c occurs in no record.
    assert (found.value, found.labels) == (0.75, 2)
    assert auroc(np.array([0, 0]), scores[:2], SINGLE).value is None
    aspects = np.array([[0.2, 0.1, 0.7], [0.1, 0.8, 0.1], [0.9, 0.05, 0.05]])
    assert auroc(np.array([[2], [1], [0]]), aspects, ASPECT).value == 1.0


def test_reliability_by_hand() -> None:
    scores = np.array([[0.95, 0.05, 0], [0.91, 0.09, 0], [0.55, 0.45, 0], [0.0, 0.0, 1.0]])
    low, high = reliability(np.array([0, 1, 1, 2]), np.array([0, 0, 0, 2]), scores, SINGLE)
    assert (low.rows, low.confidence, low.accuracy) == (1, 0.55, 0.0)
    assert (high.rows, high.confidence) == (3, pytest.approx((0.95 + 0.91 + 1) / 3))
    assert high.accuracy == pytest.approx(2 / 3)


def test_reliability_of_flags_counts_each_answer() -> None:
    scores = np.array([[0.97, 0.45], [0.03, 0.55]])
    low, high = reliability(np.array([[1, 0], [0, 0]]), np.array([[1, 0], [0, 1]]), scores, MULTI)
    assert (low.rows, low.accuracy, low.confidence) == (2, 0.5, 0.55)
    assert (high.rows, high.accuracy, high.confidence) == (2, 1.0, 0.97)
