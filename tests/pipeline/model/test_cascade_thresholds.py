"""Thresholds of a cascade: as low as the agreed loss allows, and no lower."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.heads import Answer, head_slices
from pipeline.inference import Inferred
from pipeline.model.cascade_thresholds import (
    HeadOutcome,
    choose_thresholds,
    head_outcomes,
    measure,
)
from pipeline.model.labelled import Example
from schemas.errors import ArtifactError, DataContractError
from schemas.task import HeadConfig

N = 400


def outcome(*, small_wrong_below: float, large_wrong: int = 0, seed: int = 0) -> HeadOutcome:
    """A head of two labels; the small model errs where its confidence is low."""
    chance = np.random.default_rng(seed)
    truth = chance.integers(0, 2, N)
    confidence = chance.permutation(np.linspace(0.5, 1.0, N))
    small = np.where(confidence < small_wrong_below, 1 - truth, truth)
    large = truth.copy()
    large[:large_wrong] = 1 - large[:large_wrong]
    return HeadOutcome(truth, np.ones(N, np.bool_), small, large, confidence)


def test_the_small_model_answers_all_that_costs_nothing() -> None:
    found = choose_thresholds({"h": outcome(small_wrong_below=0.7)}, max_metric_loss=0.0)
    assert 0.70 <= found["h"] <= 0.71
    measured = measure({"h": outcome(small_wrong_below=0.7)}, found)
    assert (measured.loss, measured.rows) == (0.0, N)
    assert measured.share_of_small == pytest.approx(0.6, abs=0.01)
    assert measured.large == {"h": 1.0}
    assert measured.together == {"h": 1.0}
    assert measured.small["h"] == pytest.approx(0.6, abs=0.02)


def test_a_greater_loss_lets_it_answer_more() -> None:
    shares = []
    for loss in (0.0, 0.01, 0.05):
        outcomes = {"h": outcome(small_wrong_below=0.7)}
        measured = measure(outcomes, choose_thresholds(outcomes, max_metric_loss=loss))
        assert measured.loss <= loss + 1e-12
        shares.append(measured.share_of_small)
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.5, 1.0), st.integers(0, 200), st.integers(0, 99), st.sampled_from([0.0, 0.005, 0.1])
)
def test_the_loss_of_no_head_is_greater_than_agreed(
    wrong_below: float, large_wrong: int, seed: int, agreed: float
) -> None:
    outcomes = {
        "one": outcome(small_wrong_below=wrong_below, large_wrong=large_wrong, seed=seed),
        "two": outcome(small_wrong_below=0.6, seed=seed + 1),
    }
    try:
        thresholds = choose_thresholds(outcomes, max_metric_loss=agreed)
    except ArtifactError:
        return
    measured = measure(outcomes, thresholds)
    assert all(measured.together[h] >= measured.large[h] - agreed for h in outcomes)


def test_one_weak_head_holds_all_back() -> None:
    both = {"one": outcome(small_wrong_below=0.5), "two": outcome(small_wrong_below=0.9, seed=1)}
    alone = {"one": both["one"]}
    assert measure(alone, choose_thresholds(alone, max_metric_loss=0.0)).share_of_small == 1.0
    together = measure(both, choose_thresholds(both, max_metric_loss=0.0))
    assert together.share_of_small < 0.3


def test_a_small_model_that_is_surest_where_it_errs_is_refused() -> None:
    good = outcome(small_wrong_below=0.5)
    wrong = np.where(good.confidence > 0.9, 1 - good.truth, good.truth)
    bad = HeadOutcome(good.truth, good.known, wrong, good.large, good.confidence)
    with pytest.raises(ArtifactError, match=r"score\.cascade\.max_metric_loss"):
        choose_thresholds({"h": bad}, max_metric_loss=0.001)


def test_a_head_without_labels_is_refused() -> None:
    good = outcome(small_wrong_below=0.5)
    blank = HeadOutcome(good.truth, np.zeros(N, np.bool_), good.small, good.large, good.confidence)
    with pytest.raises(DataContractError, match="head 'h' has no labelled validation texts"):
        choose_thresholds({"h": blank}, max_metric_loss=0.1)


def test_outcomes_by_head_from_what_the_models_answered() -> None:
    heads = head_slices(
        {
            "queue": HeadConfig(column="q", labels=("a", "b", "c"), review_below=0.6),
            "tags": HeadConfig(kind="multi", column="t", labels=("x", "y"), review_below=0.0),
        }
    )

    def inferred(label: str, tags: tuple[str, ...], confidence: float) -> Inferred:
        answers = {
            "queue": Answer((label,), confidence, np.zeros(3)),
            "tags": Answer(tags, confidence, np.zeros(2)),
        }
        return Inferred(answers, "auto", (), truncated=False)

    def example(queue: int | None, tags: tuple[int, ...] | None) -> Example:
        targets = {"queue": queue, "tags": tags}
        return Example("r", "h", "valid", "en", ("t",), (), targets)

    examples = [example(0, (1, 0)), example(2, None), example(None, (0, 0))]
    small = [inferred("a", ("x",), 0.9), inferred("b", (), 0.5), inferred("c", ("x", "y"), 0.7)]
    large = [inferred("a", (), 0.9), Inferred({}, "review", (), truncated=False), small[2]]
    found = head_outcomes(examples, small, large, heads)
    assert found["queue"].known.tolist() == [True, True, False]
    assert found["queue"].truth.tolist()[:2] == [0, 2]
    assert found["queue"].small.tolist() == [0, 1, 2]
    assert found["queue"].large.tolist() == [0, 0, 2]
    assert found["queue"].confidence.tolist() == [0.9, 0.0, 0.7]  # 0.5 would go to people
    assert found["tags"].known.tolist() == [True, False, True]
    assert found["tags"].small.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert found["tags"].confidence.tolist() == [0.9, 0.5, 0.7]


def test_outcomes_of_an_aspect_head_are_flags_of_its_pairs() -> None:
    heads = head_slices(
        {
            "mood": HeadConfig(
                kind="aspect", column="m", labels=("good", "bad"), aspects=("food", "staff"),
                review_below=0.0,
            )
        }
    )  # fmt: skip

    def inferred(*labels: str) -> Inferred:
        return Inferred({"mood": Answer(labels, 0.9, np.zeros(6))}, "auto", (), truncated=False)

    targets = [(1, 0), None, (0, 2)]
    examples = [
        Example(f"r{n}", "h", "valid", "en", ("x",), (), {"mood": target})
        for n, target in enumerate(targets)
    ]
    small = [inferred("food:good"), inferred(), inferred("staff:good")]
    large = [inferred("food:good"), inferred(), inferred("staff:bad")]
    found = head_outcomes(examples, small, large, heads)["mood"]
    assert found.known.tolist() == [True, False, True]
    assert found.truth[[0, 2]].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert found.small.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    everybody = np.ones(3, np.bool_)
    assert found.macro_f1(~everybody) == 1.0  # food:bad occurs nowhere, and does not count
    assert found.macro_f1(everybody) == pytest.approx((1.0 + 0.0 + 0.0) / 3)


def test_answers_to_texts_outside_are_no_ones_to_trust() -> None:
    (head,) = head_slices({"queue": HeadConfig(column="q", labels=("a", "b"), review_below=0.6)})
    answers = [Answer(("a",), 0.9, np.zeros(2), 0, 1.0, is_outside) for is_outside in (True, False)]
    small = [Inferred({"queue": one}, "auto", (), truncated=False) for one in answers]
    examples = [Example("r", "h", "valid", "en", ("t",), (), {"queue": 0})] * 2
    found = head_outcomes(examples, small, small, (head,))
    assert found["queue"].confidence.tolist() == [0.0, 0.9]
