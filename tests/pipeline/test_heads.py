"""From logits to answers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    confidences,
    decide,
    flags_of,
    head_slices,
    label_scores,
    pool_logits,
    predicted_labels,
    probabilities,
    record_scores,
)
from schemas.head import HeadConfig, OutsideConfig
from schemas.scope import ScopeMethod, ScopeRule

if TYPE_CHECKING:
    from schemas.task import WindowPooling

HEADS = {
    "queue": HeadConfig(column="q", labels=("a", "b", "c"), review_below=0.6),
    "topics": HeadConfig(kind="multi", column="t", labels=("x", "y"), review_below=0.7),
}
QUEUE, TOPICS = head_slices(HEADS)
MOOD_CONFIG = HeadConfig(
    kind="aspect", column="m", labels=("good", "bad"), aspects=("food", "staff"), review_below=0.5
)
(MOOD,) = head_slices({"mood": MOOD_CONFIG})
POOLINGS: tuple[WindowPooling, ...] = ("mean", "max", "first", "attention")
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
    pooling: WindowPooling = "mean",
) -> Answer:
    """One record at a time, as anyone would write it."""
    by_window = probabilities(logits, head)
    if pooling == "mean":
        scores = (n_tokens / n_tokens.sum()) @ by_window
    else:
        if pooling == "attention":
            powers = np.exp(logits[:, -1] - logits[:, -1].max())
            logits = (powers / powers.sum()) @ logits[:, :-1]
        else:
            logits = logits[0] if pooling == "first" else logits.max(axis=0)
        scores = probabilities(logits[None], head)[0]
    config = head.config
    if config.kind == "single":
        best = int(scores.argmax())
        window = int(by_window[:, best].argmax())
        return Answer((config.labels[best],), float(scores[best]), scores, window)
    if config.kind == "multi":
        chosen, names = scores >= 0.5, np.array(config.labels)
        sure = float(np.maximum(scores, 1.0 - scores).min())
    else:
        places = list(range(0, len(scores), len(config.labels) + 1))
        groups = [scores[at : at + len(config.labels) + 1] for at in places]
        chosen = np.zeros(len(scores), dtype=bool)
        for at, group in zip(places, groups, strict=True):
            chosen[at + group.argmax()] = group.argmax() > 0
        sure = float(min(group.max() for group in groups))
        names = np.array(config.score_names)
        is_label = np.array([not name.endswith(":none") for name in names])
        by_window, chosen, names = by_window[:, is_label], chosen[is_label], names[is_label]
    telling = by_window[:, chosen] if chosen.any() else by_window
    return Answer(tuple(names[chosen].tolist()), sure, scores, int(telling.max(axis=1).argmax()))


RECORDS = st.lists(
    st.lists(
        st.tuples(st.lists(finite, min_size=7, max_size=7), st.integers(1, 512)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("pooling", POOLINGS)
@given(RECORDS)
def test_failure_25_many_records_at_once_are_answered_to_the_bit_as_one_by_one(
    pooling: WindowPooling, records: list[list[tuple[list[float], int]]]
) -> None:
    windows = [window for record in records for window in record]
    logits, n_tokens = array(*(row for row, _ in windows)), counts(*(n for _, n in windows))
    n_windows = counts(*map(len, records))
    for head in (QUEUE, TOPICS, MOOD):
        start = 0
        found = answers(logits, n_tokens, n_windows, head, pooling=pooling)
        for record, got in zip(records, found, strict=True):
            span = slice(start, start + len(record))
            expected = straightforward(logits[span], n_tokens[span], head, pooling)
            start += len(record)
            assert (got.labels, got.window) == (expected.labels, expected.window)
            assert got.confidence == expected.confidence
            assert got.scores.tobytes() == expected.scores.tobytes()
            alone = answer(logits[span], n_tokens[span], head, pooling=pooling)
            assert alone.scores.tobytes() == got.scores.tobytes()


@given(st.lists(finite, min_size=7, max_size=7), st.integers(1, 512))
def test_one_window_is_answered_the_same_in_every_way(row: list[float], tokens: int) -> None:
    for head in (QUEUE, TOPICS, MOOD):
        found = [answer(array(row), counts(tokens), head, pooling=way) for way in POOLINGS]
        assert len({(got.labels, got.confidence, got.scores.tobytes()) for got in found}) == 1
        for way in POOLINGS:
            scores = record_scores(array(row), counts(tokens), head, pooling=way)
            assert scores.tobytes() == found[0].scores.tobytes()


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


def test_logits_of_windows_are_pooled_as_the_task_says() -> None:
    rows, tokens = array([1.0, 8.0, 0.0], [5.0, 2.0, math.log(3.0)]), counts(30, 10)
    assert pool_logits(rows, tokens, "first").tolist() == [1.0, 8.0, 0.0]
    assert pool_logits(rows, tokens, "max").tolist() == [5.0, 8.0, math.log(3.0)]
    assert_allclose(pool_logits(rows, tokens, "mean")[:2], [2.0, 6.5])
    # The last column says that the second window counts three times as much.
    assert_allclose(pool_logits(rows, tokens, "attention"), [4.0, 3.5])


def test_the_max_is_taken_before_the_softmax() -> None:
    rows = array([3.0, 0.0, 0.0, 0, 0], [0.0, 2.0, 0.0, 0, 0])
    got = answer(rows, counts(1, 99), QUEUE, pooling="max")
    assert (got.labels, got.window) == (("a",), 0)
    assert_allclose(got.scores, probabilities(array([3.0, 2.0, 0.0]), QUEUE)[0])


def test_aspects_lie_side_by_side_each_with_none_first() -> None:
    assert MOOD.columns == slice(0, 6)
    assert MOOD_CONFIG.score_names == (
        "food:none", "food:good", "food:bad", "staff:none", "staff:good", "staff:bad",
    )  # fmt: skip
    assert MOOD_CONFIG.answer_labels == ("food:good", "food:bad", "staff:good", "staff:bad")
    assert MOOD_CONFIG.n_scores == len(MOOD_CONFIG.score_names)
    queue, mood, topics = head_slices({"q": HEADS["queue"], "m": MOOD_CONFIG, "t": HEADS["topics"]})
    assert (queue.columns, mood.columns, topics.columns) == (
        slice(0, 3), slice(3, 9), slice(9, 11),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("food", "staff", "labels", "confidence"),
    [
        ((0.1, 0.7, 0.2), (0.2, 0.2, 0.6), ("food:good", "staff:bad"), 0.6),
        ((0.9, 0.1, 0.0), (0.2, 0.5, 0.3), ("staff:good",), 0.5),
        ((0.5, 0.3, 0.2), (0.8, 0.1, 0.1), (), 0.5),
        ((0.4, 0.4, 0.2), (0.9, 0.0, 0.1), (), 0.4),  # the first of equal choices is none
    ],
)
def test_an_aspect_head_answers_the_best_choice_of_each_aspect(
    food: tuple[float, ...],
    staff: tuple[float, ...],
    labels: tuple[str, ...],
    confidence: float,
) -> None:
    rows = array(np.log(np.clip([*food, *staff], 1e-12, None)).tolist())
    got = answer(rows, counts(9), MOOD)
    assert got.labels == labels
    assert got.confidence == pytest.approx(confidence)
    assert_allclose(got.scores, [*food, *staff], atol=1e-9)
    sure = {"mood": got}
    assert decide(sure, (MOOD,)) == ("review" if confidence < 0.5 else "auto")


def test_temperature_divides_the_logits_of_an_aspect_head() -> None:
    hot = HeadSlice("mood", MOOD_CONFIG, 0, temperature=2.0)
    got = probabilities(array([2.0, 4.0, 6.0, 0.0, 2.0, 0.0]), hot)
    assert_allclose(got, probabilities(array([1.0, 2.0, 3.0, 0.0, 1.0, 0.0]), MOOD), rtol=1e-12)
    assert_allclose(got.reshape(2, 3).sum(axis=1), [1.0, 1.0])


@pytest.mark.parametrize(
    ("windows", "labels", "window"),
    [
        ([(0.1, 0.9, 0.0), (0.6, 0.4, 0.0)], ("food:good",), 0),
        ([(0.4, 0.6, 0.0), (0.1, 0.9, 0.0)], ("food:good",), 1),
        # Nothing is said of the food: the window where most speaks for any label, not for none.
        ([(0.99, 0.01, 0.0), (0.6, 0.0, 0.4)], (), 1),
    ],
)
def test_the_window_that_speaks_most_for_an_aspect_answer_is_told(
    windows: list[tuple[float, ...]], labels: tuple[str, ...], window: int
) -> None:
    staff = (1.0, 0.0, 0.0)
    rows = array(*(np.log(np.clip([*food, *staff], 1e-12, None)).tolist() for food in windows))
    got = answer(rows, counts(5, 5), MOOD)
    assert (got.labels, got.window) == (labels, window)


def test_predictions_in_the_form_of_their_head() -> None:
    three = np.array([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3]])
    assert predicted_labels(three, QUEUE).tolist() == [1, 0]
    assert confidences(three, QUEUE).tolist() == [0.5, 0.4]
    assert flags_of(predicted_labels(three, QUEUE), QUEUE).tolist() == [
        [False, True, False], [True, False, False],
    ]  # fmt: skip
    two = np.array([[0.5, 0.1]])
    assert predicted_labels(two, TOPICS).tolist() == [[True, False]]
    assert confidences(two, TOPICS).tolist() == [[0.5, 0.9]]
    assert flags_of(predicted_labels(two, TOPICS), TOPICS).tolist() == [[True, False]]
    six = np.array([[0.2, 0.5, 0.3, 0.7, 0.2, 0.1]])
    assert predicted_labels(six, MOOD).tolist() == [[1, 0]]
    assert confidences(six, MOOD).tolist() == [[0.5, 0.7]]
    assert flags_of(predicted_labels(six, MOOD), MOOD).tolist() == [[True, False, False, False]]
    assert label_scores(six, MOOD).tolist() == [[0.5, 0.3, 0.2, 0.1]]


def test_no_records_give_no_answers() -> None:
    none, no_counts = np.zeros((0, 7)), np.zeros(0, np.int64)
    for head in (QUEUE, TOPICS, MOOD):
        assert answers(none, no_counts, no_counts, head) == []


ASKED = HeadConfig(column="q", labels=("a", "b"), outside=OutsideConfig(labels=("oos",)))


def asked(method: ScopeMethod, threshold: float, *, temperature: float = 1.0) -> HeadSlice:
    rule = ScopeRule(method=method, threshold=threshold, kept=1.0, rows_inside=1, rows_outside=0)
    (head,) = head_slices({"q": ASKED}, {"q": temperature}, scopes={"q": rule})
    return head


def test_a_text_under_the_threshold_fits_no_label() -> None:
    rows = array([math.log(3.0), 0.0], [0.0, 0.0])
    ones = counts(1, 1)
    sure, torn = answers(rows, ones, ones, asked("max_probability", 0.75))
    assert (sure.scope, sure.outside) == (pytest.approx(0.75), False)
    assert (torn.scope, torn.outside) == (pytest.approx(0.5), True)
    strong, weak = answers(rows, ones, ones, asked("energy", math.log(4.0) - 1e-9))
    assert (strong.scope, strong.outside) == (pytest.approx(math.log(4.0)), False)
    assert (weak.scope, weak.outside) == (pytest.approx(math.log(2.0)), True)


def test_what_fits_is_asked_of_logits_by_their_temperature() -> None:
    found = answer(array([4.0, 0.0]), counts(1), asked("energy", 0.0, temperature=2.0))
    assert found.scope == pytest.approx(math.log(math.exp(2.0) + 1.0))
    assert not found.outside


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [
        ("mean", [3.0, 1.0]), ("max", [6.0, 2.0]), ("first", [2.0, 2.0 / 3]),
        ("attention", [5.0, 0.5]),
    ],
)  # fmt: skip
def test_what_fits_is_asked_of_logits_pooled_as_in_training(
    pooling: WindowPooling, pooled: list[float]
) -> None:
    first, second = [2.0, 2.0 / 3], [6.0, 2.0]
    if pooling == "attention":  # the second window counts three times as much
        first, second = [2.0, 2.0, 0.0], [6.0, 0.0, math.log(3.0)]
    found = answer(array(first, second), counts(30, 10), asked("energy", 0.0), pooling=pooling)
    assert found.scope == pytest.approx(math.log(sum(math.exp(logit) for logit in pooled)))


def test_without_a_rule_or_without_asking_nothing_is_outside() -> None:
    rule = asked("energy", 1e9).scope_rule
    assert rule is not None
    plain = ASKED.model_copy(update={"outside": None})
    for heads, scopes in (({"q": ASKED}, None), ({"q": ASKED}, {}), ({"q": plain}, {"q": rule})):
        (head,) = head_slices(heads, scopes=scopes)
        found = answer(array([0.0, 0.0]), counts(1), head)
        assert (head.scope_rule, found.scope, found.outside) == (None, None, False)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("method", ["max_probability", "energy"])
@given(records=RECORDS)
def test_what_fits_is_the_same_to_the_bit_alone_and_among_others(
    method: ScopeMethod, pooling: WindowPooling, records: list[list[tuple[list[float], int]]]
) -> None:
    head = asked(method, 0.7, temperature=1.3)
    bare = replace(head, scope_rule=None)
    windows = [window for record in records for window in record]
    logits, n_tokens = array(*(row for row, _ in windows)), counts(*(n for _, n in windows))
    together = answers(logits, n_tokens, counts(*map(len, records)), head, pooling=pooling)
    start = 0
    for record, got in zip(records, together, strict=True):
        span = slice(start, start + len(record))
        alone = answer(logits[span], n_tokens[span], head, pooling=pooling)
        without = answer(logits[span], n_tokens[span], bare, pooling=pooling)
        start += len(record)
        assert (got.scope, got.outside) == (alone.scope, alone.outside)
        assert got.outside == (got.scope < 0.7)
        assert got.scores.tobytes() == without.scores.tobytes()
        assert replace(got, scores=without.scores, scope=None, outside=False) == without


def test_a_text_outside_goes_to_people_however_sure_its_answer_is() -> None:
    head = asked("energy", 0.0)
    sure = Answer(("a",), 1.0, np.array([1.0, 0.0]), scope=1.0)
    assert decide({"q": sure}, (head,)) == "auto"
    assert decide({"q": replace(sure, scope=-1.0, outside=True)}, (head,)) == "review"
