from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from pipeline.heads import HeadSlice
from pipeline.model.metrics import (
    _fast_macro_f1,
    calibration_error,
    certain_drop,
    fit_temperature,
    gate_metric,
    head_macro_f1,
    head_metrics,
    known_pairs,
    macro_f1,
)
from schemas.bundle import LanguageMetrics
from schemas.task import HeadConfig

SINGLE = HeadSlice("queue", HeadConfig(column="queue", labels=("a", "b", "c")), 0)
MULTI = HeadSlice("tags", HeadConfig(kind="multi", column="tags", labels=("x", "y")), 3)
ASPECT = HeadSlice(
    "mood",
    HeadConfig(kind="aspect", column="mood", labels=("good", "bad"), aspects=("food", "staff")),
    0,
)

LABELS = st.integers(1, 60).flatmap(
    lambda rows: st.tuples(
        st.lists(st.integers(0, 7), min_size=rows, max_size=rows),
        st.lists(st.integers(0, 7), min_size=rows, max_size=rows),
    )
)


@given(LABELS)
@settings(deadline=None)
def test_fast_macro_f1_is_sklearns(pairs: tuple[list[int], list[int]]) -> None:
    truth, predicted = map(np.array, pairs)
    wanted = f1_score(truth, predicted, average="macro", zero_division=0)
    assert _fast_macro_f1(truth, predicted) == pytest.approx(wanted)
    assert macro_f1(truth, predicted) == pytest.approx(wanted)


@given(st.integers(1, 40), st.integers(2, 5), st.integers(0, 1000))
@settings(deadline=None)
def test_fast_macro_f1_is_sklearns_for_several_labels(rows: int, labels: int, seed: int) -> None:
    chooser = np.random.default_rng(seed)
    truth, predicted = (
        (chooser.random((rows, labels)) < chooser.random(labels)).astype(np.int64) for _ in range(2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = f1_score(truth, predicted, average="macro", zero_division=0)
    assert _fast_macro_f1(truth, predicted) == pytest.approx(wanted)


def test_macro_f1_by_hand() -> None:
    truth, predicted = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    assert macro_f1(truth, predicted) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)


def test_gate_metric_is_the_mean_over_heads_with_known_labels() -> None:
    logits = np.array([[9.0, 0, 0, 5.0, -5.0], [0, 9.0, 0, 5.0, 5.0]])
    targets = {"queue": np.array([0, -100]), "tags": np.array([[1.0, 0.0], [1.0, 0.0]])}
    assert gate_metric(logits, targets, (SINGLE, MULTI)) == pytest.approx((1.0 + 0.5) / 2)
    nothing = {"queue": np.array([-100, -100]), "tags": np.full((2, 2), np.nan)}
    assert gate_metric(logits, nothing, (SINGLE, MULTI)) == 0.0
    assert gate_metric(logits, {**targets, "tags": nothing["tags"]}, (SINGLE, MULTI)) == 1.0


def test_calibration_error_by_hand() -> None:
    # Two bins: 0.62 sure and half right (gap 0.12), 0.95 sure and all right (gap 0.05).
    confidence = np.array([0.62, 0.62, 0.95, 0.95])
    correct = np.array([True, False, True, True])
    assert calibration_error(confidence, correct) == pytest.approx(0.5 * 0.12 + 0.5 * 0.05)
    assert calibration_error(np.array([1.0]), np.array([True])) == 0.0
    assert calibration_error(np.array([1.0]), np.array([False])) == 1.0


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.5])
def test_a_known_temperature_is_found(temperature: float) -> None:
    chooser = np.random.default_rng(4)
    true_logits = chooser.normal(0, 2, (6000, 3))
    # Argmax of logits and Gumbel noise is a draw from their softmax.
    truth = (true_logits + chooser.gumbel(size=true_logits.shape)).argmax(axis=1)
    found = fit_temperature(true_logits * temperature, truth, SINGLE)
    assert found == pytest.approx(temperature, rel=0.1)


def test_a_known_temperature_is_found_for_several_labels() -> None:
    chooser = np.random.default_rng(5)
    true_logits = chooser.normal(0, 2, (4000, 5))
    truth = (chooser.random((4000, 2)) < 1 / (1 + np.exp(-true_logits[:, 3:]))).astype(np.float32)
    truth[::7] = np.nan
    assert fit_temperature(true_logits * 2.0, truth, MULTI) == pytest.approx(2.0, rel=0.1)


def test_without_labels_the_temperature_is_one() -> None:
    assert fit_temperature(np.ones((2, 3)), np.array([-100, -100]), SINGLE) == 1.0
    assert fit_temperature(np.ones((2, 5)), np.full((2, 2), np.nan), MULTI) == 1.0


def test_temperature_stays_bounded_on_a_perfect_or_hopeless_model() -> None:
    perfect = np.eye(3)[[0, 1, 2] * 10] * 5
    assert 0.25 <= fit_temperature(perfect, np.array([0, 1, 2] * 10), SINGLE) < 0.3
    assert 7.9 < fit_temperature(perfect, np.array([1, 2, 0] * 10), SINGLE) <= 8.0


def test_head_metrics_of_a_single_head() -> None:
    scores = np.array([[0.8, 0.1, 0.1]] * 6 + [[0.1, 0.7, 0.2]] * 4)
    truth = np.array([0] * 5 + [2] + [1] * 3 + [-100])
    metrics = head_metrics(scores, truth, SINGLE, seed=1)
    assert metrics.rows == 9
    assert metrics.accuracy == pytest.approx(8 / 9)
    assert metrics.majority_accuracy == pytest.approx(5 / 9)
    assert metrics.macro_f1 == pytest.approx((10 / 11 + 1.0 + 0.0) / 3)
    assert metrics.accuracy_interval[0] <= metrics.accuracy <= metrics.accuracy_interval[1]
    assert metrics.macro_f1_interval[0] <= metrics.macro_f1 <= metrics.macro_f1_interval[1]
    assert metrics.accuracy_interval[0] < metrics.accuracy_interval[1]
    gap_of_high, gap_of_low = abs(0.8 - 5 / 6), abs(0.7 - 1.0)
    assert metrics.expected_calibration_error == pytest.approx(
        (6 * gap_of_high + 3 * gap_of_low) / 9
    )
    assert head_metrics(scores, truth, SINGLE, seed=1) == metrics


def test_head_metrics_of_a_multi_head() -> None:
    scores = np.array([[0.9, 0.2], [0.8, 0.6], [0.1, 0.1], [0.5, 0.5]])
    truth = np.array([[1, 0], [1, 0], [0, 0], [np.nan, np.nan]], dtype=np.float32)
    metrics = head_metrics(scores, truth, MULTI, seed=1)
    assert metrics.rows == 3
    assert metrics.accuracy == pytest.approx(5 / 6)
    assert metrics.macro_f1 == pytest.approx(0.5)
    assert metrics.majority_accuracy == pytest.approx((2 / 3 + 1) / 2)


def test_metrics_by_language_are_those_of_its_records_alone() -> None:
    chooser = np.random.default_rng(3)
    truth = chooser.integers(0, 3, 200)
    scores = np.eye(3)[np.where(chooser.random(200) < 0.7, truth, (truth + 1) % 3)] * 0.8 + 0.1
    langs = ["de"] * 60 + ["en"] * 105 + ["th"] * 29 + ["ja"] * 6
    truth[:2] = -100
    metrics = head_metrics(scores, truth, SINGLE, seed=1, langs=langs)
    assert list(metrics.by_lang) == ["en", "de", "th", "ja"]
    assert [found.rows for found in metrics.by_lang.values()] == [105, 58, 29, 6]
    for lang, rows in (("de", slice(0, 60)), ("en", slice(60, 165))):
        alone = head_metrics(scores[rows], truth[rows], SINGLE, seed=1)
        found = metrics.by_lang[lang]
        assert (found.accuracy, found.macro_f1) == (alone.accuracy, alone.macro_f1)
        assert found.accuracy_interval == alone.accuracy_interval
        assert found.macro_f1_interval == alone.macro_f1_interval
    assert metrics.by_lang["th"] == LanguageMetrics(rows=29)
    assert head_metrics(scores, truth, SINGLE, seed=1) == metrics.model_copy(update={"by_lang": {}})


def test_metrics_by_language_of_a_multi_head() -> None:
    scores = np.array([[0.9, 0.2], [0.8, 0.6]] * 30)
    truth = np.array([[1, 0], [1, 0]] * 30, dtype=np.float32)
    metrics = head_metrics(scores, truth, MULTI, seed=1, langs=["de", "en"] * 30)
    assert {lang: found.accuracy for lang, found in metrics.by_lang.items()} == {
        "de": 1.0,
        "en": 0.5,
    }


def test_head_metrics_of_nothing() -> None:
    for metrics in (
        head_metrics(np.zeros((0, 3)), np.zeros(0, dtype=np.int64), SINGLE, seed=1),
        head_metrics(np.zeros((2, 2)), np.full((2, 2), np.nan), MULTI, seed=1),
        head_metrics(np.zeros((2, 3)), np.full(2, -100), SINGLE, seed=1, langs=["de", "en"]),
    ):
        assert metrics.by_lang == {}
        assert (metrics.rows, metrics.accuracy, metrics.macro_f1) == (0, 0.0, 0.0)


def test_an_equal_candidate_has_no_drop() -> None:
    chooser = np.random.default_rng(2)
    truth, answers = chooser.integers(0, 4, 200), chooser.integers(0, 4, 200)
    assert certain_drop(truth, answers, answers) == 0.0
    empty = np.zeros(0, dtype=np.int64)
    assert certain_drop(empty, empty, empty) == 0.0


def test_a_clearly_worse_candidate_has_a_drop() -> None:
    truth = np.arange(300) % 3
    worse = truth.copy()
    worse[:60] = (worse[:60] + 1) % 3
    assert 0.1 < certain_drop(truth, truth, worse) < 0.2
    assert certain_drop(truth, worse, truth) < 0.0


def test_one_flip_on_few_records_proves_nothing() -> None:
    truth = np.arange(35) % 7
    flipped = truth.copy()
    flipped[3] = 0
    assert macro_f1(truth, truth) - macro_f1(truth, flipped) > 0.01
    assert certain_drop(truth, truth, flipped) <= 0.01


def aspect_scores(*rows: tuple[int, int], sure: float = 0.8) -> np.ndarray:
    """Scores that are `sure` of these choices of the two aspects."""
    return np.array([np.where(np.eye(3)[list(row)], sure, (1 - sure) / 2).ravel() for row in rows])


def test_macro_f1_of_an_aspect_head_is_over_pairs_that_occur() -> None:
    truth = np.array([[1, 0], [1, 2], [0, 0]])
    predicted = np.array([[1, 0], [0, 2], [0, 1]])
    # food:good hits 1 of 2 (F1 2/3), staff:bad 1 of 1, staff:good is said wrongly once (F1 0);
    # food:bad occurs nowhere.
    assert head_macro_f1(truth, predicted, ASPECT) == pytest.approx((2 / 3 + 1.0 + 0.0) / 3)
    nothing = np.zeros((3, 2), dtype=np.int64)
    assert head_macro_f1(nothing, nothing, ASPECT) == 0.0
    assert head_macro_f1(truth, truth, ASPECT) == 1.0


@given(st.integers(1, 40), st.integers(0, 1000))
@settings(deadline=None)
def test_macro_f1_of_an_aspect_head_is_sklearns_over_those_pairs(rows: int, seed: int) -> None:
    chooser = np.random.default_rng(seed)
    truth, predicted = chooser.integers(0, 3, (2, rows, 2))
    codes = [(answers + np.array([0, 10])).ravel() for answers in (truth, predicted)]
    pairs = [code for code in (1, 2, 11, 12) if any((code == some).any() for some in codes)]
    wanted = f1_score(*codes, labels=pairs, average="macro", zero_division=0) if pairs else 0.0
    assert head_macro_f1(truth, predicted, ASPECT) == pytest.approx(wanted)


def test_head_metrics_of_an_aspect_head() -> None:
    scores = aspect_scores((1, 0), (0, 2), (0, 1), (1, 1))
    truth = np.array([[1, 0], [1, 2], [0, 0], [np.nan, np.nan]], dtype=np.float32)
    metrics = head_metrics(scores, truth, ASPECT, seed=1)
    assert metrics.rows == 3
    assert metrics.accuracy == pytest.approx(4 / 6)  # of six aspects
    assert metrics.macro_f1 == pytest.approx((2 / 3 + 1.0 + 0.0) / 3)
    assert metrics.majority_accuracy == pytest.approx(4 / 6)  # food good, staff none
    assert metrics.expected_calibration_error == pytest.approx(0.8 - 4 / 6)
    assert metrics.accuracy_interval[0] < metrics.accuracy < metrics.accuracy_interval[1]
    assert 0.0 <= metrics.macro_f1_interval[0] < metrics.macro_f1_interval[1] <= 1.0
    nothing = head_metrics(scores, np.full((4, 2), np.nan), ASPECT, seed=1)
    assert (nothing.rows, nothing.macro_f1) == (0, 0.0)


def test_metrics_by_language_of_an_aspect_head() -> None:
    scores = aspect_scores(*[(1, 0), (2, 0)] * 30)
    truth = np.array([[1, 0], [1, 1]] * 30, dtype=np.float32)
    metrics = head_metrics(scores, truth, ASPECT, seed=1, langs=["de", "en"] * 30)
    found = {lang: (each.accuracy, each.macro_f1) for lang, each in metrics.by_lang.items()}
    assert found == {"de": (1.0, 1.0), "en": (0.0, 0.0)}


def test_gate_metric_of_an_aspect_head() -> None:
    logits = np.array([[0, 9.0, 0, 9.0, 0, 0], [9.0, 0, 0, 0, 0, 9.0]])
    truth = np.array([[1.0, 0.0], [1.0, 2.0]])
    assert gate_metric(logits, {"mood": truth}, (ASPECT,)) == pytest.approx((2 / 3 + 1.0) / 2)
    right, predicted = known_pairs(logits, np.array([[np.nan, np.nan], [1.0, 2.0]]), ASPECT)
    assert (right.tolist(), predicted.tolist()) == ([[1, 2]], [[0, 2]])


def test_a_known_temperature_is_found_for_aspects() -> None:
    chooser = np.random.default_rng(6)
    true_logits = chooser.normal(0, 2, (4000, 6))
    noisy = (true_logits + chooser.gumbel(size=true_logits.shape)).reshape(-1, 2, 3)
    truth = noisy.argmax(axis=2).astype(np.float32)
    truth[::9] = np.nan
    assert fit_temperature(true_logits * 2.0, truth, ASPECT) == pytest.approx(2.0, rel=0.1)


def test_a_drop_counts_pairs_that_occur() -> None:
    truth = np.zeros((200, 4), dtype=np.int64)
    truth[::2, 0] = 1
    worse = truth.copy()
    worse[::4, 0] = 0  # half of the only pair's hits: F1 falls from 1 to 2/3
    drop = certain_drop(truth, truth, worse, only_present=True)
    assert 0.2 < drop < 1 / 3
    assert certain_drop(truth, truth, worse) == pytest.approx(drop / 4)
