"""From logits to answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from pipeline.heads import (
    Answer,
    HeadSlice,
    aggregate,
    answer,
    answers,
    decide,
    head_slices,
    probabilities,
)
from schemas.task import HeadConfig

HEADS = {
    "queue": HeadConfig(column="q", labels=("a", "b", "c"), review_below=0.6),
    "topics": HeadConfig(kind="multi", column="t", labels=("x", "y"), review_below=0.7),
}
QUEUE, TOPICS = head_slices(HEADS)
finite = st.floats(-1e4, 1e4, width=32)


def array(*rows: list[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(rows, dtype=np.float64)


def counts(*n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(n, dtype=np.int64)


def logits_of(*p: float) -> list[float]:
    return [math.log(value) for value in p]


def test_heads_lie_side_by_side_in_the_order_of_the_config() -> None:
    """FAILURES row 42: each head reads its own columns."""
    assert (QUEUE.columns, TOPICS.columns) == (slice(0, 3), slice(3, 5))
    swapped = head_slices(dict(reversed(HEADS.items())), {"queue": 2.0})
    assert [(head.name, head.start, head.temperature) for head in swapped] == [
        ("topics", 0, 1.0),
        ("queue", 2, 2.0),
    ]


def test_softmax_of_known_logits() -> None:
    got = probabilities(array([*logits_of(0.2, 0.3, 0.5), 9.0, 9.0]), QUEUE)
    assert_allclose(got, [[0.2, 0.3, 0.5]], rtol=1e-12)


def test_sigmoid_of_known_logits() -> None:
    got = probabilities(array([9.0, 9.0, 9.0, 0.0, math.log(3.0)]), TOPICS)
    assert_allclose(got, [[0.5, 0.75]], rtol=1e-12)


def test_temperature_divides_the_logits() -> None:
    hot = HeadSlice("queue", HEADS["queue"], 0, temperature=2.0)
    got = probabilities(array([2.0, 4.0, 6.0]), hot)
    assert_allclose(got, probabilities(array([1.0, 2.0, 3.0, 0, 0]), QUEUE), rtol=1e-12)


@given(st.lists(finite, min_size=5, max_size=5))
def test_probabilities_are_finite_whatever_the_logits(row: list[float]) -> None:
    """FAILURES row 30: large logits overflow nothing."""
    single, multi = (probabilities(array(row), head) for head in (QUEUE, TOPICS))
    assert single.sum() == pytest.approx(1.0)
    assert ((single >= 0) & (single <= 1)).all()
    assert ((multi >= 0) & (multi <= 1)).all()


def test_windows_weigh_by_their_tokens() -> None:
    got = aggregate(array([1.0, 0.0], [0.0, 1.0]), counts(30, 10))
    assert_allclose(got, [0.75, 0.25])


@given(
    st.lists(st.tuples(st.lists(finite, min_size=5, max_size=5), st.integers(1, 512)), min_size=1)
)
def test_the_mean_stays_a_distribution_between_its_windows(
    windows: list[tuple[list[float], int]],
) -> None:
    rows = probabilities(array(*(row for row, _ in windows)), QUEUE)
    mean = aggregate(rows, counts(*(n for _, n in windows)))
    assert mean.sum() == pytest.approx(1.0)
    assert (mean >= rows.min(axis=0) - 1e-12).all()
    assert (mean <= rows.max(axis=0) + 1e-12).all()


@given(st.lists(finite, min_size=5, max_size=5), st.integers(1, 512), st.integers(1, 20))
def test_n_equal_windows_answer_like_one(row: list[float], tokens: int, n: int) -> None:
    """Aggregation inverts the window count."""
    for head in (QUEUE, TOPICS):
        one = answer(array(row), counts(tokens), head)
        many = answer(array(*[row] * n), counts(*[tokens] * n), head)
        assert_allclose(many.scores, one.scores, atol=1e-12)
        assert many.confidence == pytest.approx(one.confidence, abs=1e-12)


def test_a_single_head_answers_its_best_label() -> None:
    got = answer(array([*logits_of(0.2, 0.7, 0.1), 0, 0]), counts(9), QUEUE)
    assert got.labels == ("b",)
    assert got.confidence == pytest.approx(0.7)
    assert_allclose(got.scores, [0.2, 0.7, 0.1])


def test_the_first_of_two_equal_labels_wins() -> None:
    assert answer(array([1.0, 1.0, 0.0, 0, 0]), counts(9), QUEUE).labels == ("a",)


@pytest.mark.parametrize(
    ("scores", "labels", "confidence"),
    [
        ((0.9, 0.2), ("x",), 0.8),
        ((0.9, 0.6), ("x", "y"), 0.6),
        ((0.1, 0.2), (), 0.8),
        ((0.5, 0.01), ("x",), 0.5),
    ],
)
def test_a_multi_head_answers_all_labels_over_its_threshold(
    scores: tuple[float, float], labels: tuple[str, ...], confidence: float
) -> None:
    odds = [math.log(p / (1 - p)) for p in scores]
    got = answer(array([0, 0, 0, *odds]), counts(9), TOPICS)
    assert got.labels == labels
    assert got.confidence == pytest.approx(confidence)


def test_the_window_that_speaks_most_for_a_single_answer_is_told() -> None:
    rows = array(
        [*logits_of(0.5, 0.4, 0.1), 0, 0],
        [*logits_of(0.1, 0.8, 0.1), 0, 0],
        [*logits_of(0.6, 0.3, 0.1), 0, 0],
    )
    got = answer(rows, counts(9, 1, 1), QUEUE)
    assert (got.labels, got.window) == (("a",), 2)
    got = answer(rows, counts(1, 9, 1), QUEUE)
    assert (got.labels, got.window) == (("b",), 1)


@pytest.mark.parametrize(
    ("windows", "labels", "window"),
    [
        (((0.6, 0.1), (0.9, 0.2), (0.8, 0.3)), ("x",), 1),
        (((0.6, 0.9), (0.7, 0.6), (0.6, 0.95)), ("x", "y"), 2),
        (((0.1, 0.2), (0.4, 0.1), (0.1, 0.3)), (), 1),  # of any label, where none is chosen
        (((0.9, 0.5), (0.6, 0.0)), ("x",), 0),
        (((0.6, 0.9), (0.7, 0.0), (0.6, 0.0)), ("x",), 1),  # a label not chosen has no say
    ],
)
def test_the_window_that_speaks_most_for_a_multi_answer_is_told(
    windows: tuple[tuple[float, float], ...], labels: tuple[str, ...], window: int
) -> None:
    odds = np.log(np.clip(windows, 1e-9, None)) - np.log1p(-np.array(windows))
    rows = np.hstack([np.zeros((len(windows), 3)), odds])
    got = answer(rows, counts(*[5] * len(windows)), TOPICS)
    assert (got.labels, got.window) == (labels, window)


@given(
    st.lists(st.tuples(st.lists(finite, min_size=5, max_size=5), st.integers(1, 512)), min_size=1)
)
def test_the_telling_window_is_one_of_the_records(
    windows: list[tuple[list[float], int]],
) -> None:
    rows = array(*(row for row, _ in windows))
    for head in (QUEUE, TOPICS):
        got = answer(rows, counts(*(n for _, n in windows)), head)
        by_window = probabilities(rows, head)
        chosen = [head.config.labels.index(label) for label in got.labels]
        telling = by_window[:, chosen] if chosen else by_window
        assert telling[got.window].max() == telling.max()


@pytest.mark.parametrize(
    ("queue", "topics", "decision"),
    [(0.6, 0.7, "auto"), (0.59, 0.99, "review"), (0.99, 0.69, "review"), (1.0, 1.0, "auto")],
)
def test_one_unsure_head_sends_the_record_to_people(
    queue: float, topics: float, decision: str
) -> None:
    answers = {
        "queue": Answer(("a",), queue, np.zeros(3)),
        "topics": Answer((), topics, np.zeros(2)),
    }
    assert decide(answers, (QUEUE, TOPICS)) == decision
    assert_array_equal(answers["queue"].scores, [0, 0, 0])


def straightforward(
    logits: np.ndarray[Any, np.dtype[np.float64]],
    n_tokens: np.ndarray[Any, np.dtype[np.int64]],
    head: HeadSlice,
) -> Answer:
    """One record at a time, as anyone would write it."""
    by_window = probabilities(logits, head)
    scores = (n_tokens / n_tokens.sum()) @ by_window
    labels = head.config.labels
    if head.config.kind == "single":
        best = int(scores.argmax())
        window = int(by_window[:, best].argmax())
        return Answer((labels[best],), float(scores[best]), scores, window)
    chosen = scores >= 0.5
    telling = by_window[:, chosen] if chosen.any() else by_window
    return Answer(
        tuple(label for label, yes in zip(labels, chosen, strict=True) if yes),
        float(np.maximum(scores, 1.0 - scores).min()),
        scores,
        int(telling.max(axis=1).argmax()),
    )


@given(
    st.lists(
        st.lists(
            st.tuples(st.lists(finite, min_size=5, max_size=5), st.integers(1, 512)),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=20,
    )
)
def test_failure_25_many_records_at_once_are_answered_to_the_bit_as_one_by_one(
    records: list[list[tuple[list[float], int]]],
) -> None:
    windows = [window for record in records for window in record]
    logits, n_tokens = array(*(row for row, _ in windows)), counts(*(n for _, n in windows))
    n_windows = counts(*map(len, records))
    for head in (QUEUE, TOPICS):
        start = 0
        for record, got in zip(records, answers(logits, n_tokens, n_windows, head), strict=True):
            span = slice(start, start + len(record))
            expected = straightforward(logits[span], n_tokens[span], head)
            start += len(record)
            assert (got.labels, got.window) == (expected.labels, expected.window)
            assert got.confidence == expected.confidence
            assert got.scores.tobytes() == expected.scores.tobytes()


def test_a_wide_head_is_answered_to_the_bit_in_any_company() -> None:
    """77 labels are more than one vector of any processor, and leave a rest."""
    config = HeadConfig(column="q", labels=tuple(f"label {n}" for n in range(77)))
    (head,) = head_slices({"queue": config})
    logits = np.random.default_rng(3).normal(0, 4, (200, 77))
    ones, nines = np.ones(200, np.int64), np.full(200, 9)
    for row, got in enumerate(answers(logits, nines, ones, head)):
        alone = straightforward(logits[row : row + 1], nines[:1], head)
        assert got.scores.tobytes() == alone.scores.tobytes()
        assert (got.labels, got.confidence) == (alone.labels, alone.confidence)
