"""Texts that no label fits are told by what all labels score, and go to people."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipeline.scope import choose_rule, measure_rule, scope_scores, separation
from schemas.scope import ScopeRule

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30).map(np.array)


def test_scores_by_hand() -> None:
    logits = np.array([[0.0, 0.0], [np.log(3.0), 0.0], [1000.0, 0.0]])
    np.testing.assert_allclose(scope_scores(logits, "max_probability"), [0.5, 0.75, 1.0])
    np.testing.assert_allclose(scope_scores(logits, "energy"), [np.log(2), np.log(4), 1000.0])


def test_energy_tells_strong_logits_from_weak_ones_where_the_probability_does_not() -> None:
    logits = np.array([[2.0, 0.0], [12.0, 10.0]])
    weak, strong = scope_scores(logits, "max_probability")
    assert weak == pytest.approx(strong)
    weak, strong = scope_scores(logits, "energy")
    assert strong - weak == pytest.approx(10.0)


@given(inside=SCORES, outside=SCORES)
def test_separation_is_the_area_under_the_curve(inside, outside) -> None:
    truth = [1] * len(inside) + [0] * len(outside)
    expected = roc_auc_score(truth, [*inside, *outside])
    assert separation(inside, outside) == pytest.approx(expected)


@given(scores=SCORES, keep=st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_the_share_that_was_asked_for_is_kept_and_no_higher_threshold_keeps_it(
    scores, keep
) -> None:
    logits = np.stack([scores, np.full_like(scores, -50.0)], axis=1)  # its energy is the score
    rule = choose_rule(logits, np.zeros(len(scores), np.bool_), keep=keep)
    inside = scope_scores(logits, "energy")
    assert rule.kept == (inside >= rule.threshold).mean() >= keep
    higher = inside[inside > rule.threshold]
    assert len(higher) == 0 or (inside >= higher.min()).mean() < keep
    assert (rule.caught, rule.separation, rule.rows_outside) == (None, None, 0)


def test_the_method_is_the_one_that_tells_better() -> None:
    peaked, flat = [[4.0, 0.0]] * 10, [[9.0, 9.0]] * 10  # more energy outside than inside
    is_outside = np.arange(20) >= 10
    rule = choose_rule(np.array(peaked + flat), is_outside, keep=0.9)
    assert (rule.method, rule.kept, rule.caught) == ("max_probability", 1.0, 1.0)
    assert (rule.separation, rule.rows_inside, rule.rows_outside) == (1.0, 10, 10)
    strong, weak = [[12.0, 10.0]] * 10, [[2.0, 0.0]] * 10
    rule = choose_rule(np.array(strong + weak), is_outside, keep=0.9)
    assert (rule.method, rule.caught) == ("energy", 1.0)


def test_a_rule_needs_texts_inside() -> None:
    with pytest.raises(ValueError, match="needs texts that a label fits"):
        choose_rule(np.zeros((2, 3)), np.ones(2, np.bool_), keep=0.9)


def test_a_rule_is_measured_on_other_texts() -> None:
    rule = ScopeRule(
        method="max_probability", threshold=0.75, kept=1.0, rows_inside=1, rows_outside=0
    )
    logits = np.log([[3.0, 1.0], [4.0, 1.0], [2.0, 1.0], [1.0, 1.0], [9.0, 1.0]])
    logits[0] = [50.0, 0.0]  # 1, 0.8 and 0.67 inside; 0.5 and 0.9 outside
    shares = measure_rule(rule, logits, np.arange(5) >= 3)
    assert shares == (pytest.approx(2 / 3), 0.5)
    assert measure_rule(rule, logits, np.zeros(5, np.bool_)) == (pytest.approx(3 / 5), None)
    assert measure_rule(rule, logits, np.ones(5, np.bool_)) == (None, pytest.approx(2 / 5))


@given(st.integers(1, 40), st.integers(2, 90), st.integers(0, 9))
def test_a_text_scores_the_same_bytes_alone_and_among_others(rows, labels, seed) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, (rows, labels))
    for method in ("max_probability", "energy"):
        together = scope_scores(logits, method)
        alone = [scope_scores(logits[row : row + 1], method)[0] for row in range(rows)]
        assert together.tobytes() == np.array(alone).tobytes()
