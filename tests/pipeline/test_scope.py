"""Texts that no label fits are told by what all labels score, and go to people."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipeline.heads import answers, head_slices
from pipeline.scope import (
    Nearness,
    choose_rule,
    measure_rule,
    rule_scores,
    scope_scores,
    separation,
)
from schemas.head import HeadConfig, OutsideConfig
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
    scores = rule_scores(rule, logits, logits)
    shares = measure_rule(rule, scores, np.arange(5) >= 3)
    assert shares == (pytest.approx(2 / 3), 0.5)
    assert measure_rule(rule, scores, np.zeros(5, np.bool_)) == (pytest.approx(3 / 5), None)
    assert measure_rule(rule, scores, np.ones(5, np.bool_)) == (None, pytest.approx(2 / 5))


def test_nearness_is_taken_where_it_tells_better_and_not_where_it_tells_as_well() -> None:
    is_outside = np.arange(20) >= 10
    same = np.tile([4.0, 0.0], (20, 1))  # the logits tell nothing
    near = np.where(is_outside, 0.2, 0.9)
    rule = choose_rule(same, is_outside, keep=0.9, nearness=Nearness(7, near))
    assert (rule.method, rule.column, rule.threshold) == ("knn", 7, 0.9)
    assert (rule.kept, rule.caught, rule.separation) == (1.0, 1.0, 1.0)
    strong = np.where(is_outside[:, None], [0.1, 0.0], [9.0, 0.0])
    rule = choose_rule(strong, is_outside, keep=0.9, nearness=Nearness(7, near))
    assert (rule.method, rule.column, rule.separation) == ("max_probability", None, 1.0)


@pytest.mark.parametrize(("method", "column"), [("knn", None), ("energy", 3)])
def test_only_a_rule_by_nearness_has_a_column(method, column) -> None:
    with pytest.raises(ValueError, match="column of the model's output"):
        ScopeRule(method=method, threshold=0, kept=1, rows_inside=1, rows_outside=0, column=column)


def test_a_rule_by_logits_is_named_in_digests_as_it_was_before_there_were_others() -> None:
    given = {"method": "energy", "threshold": 2.0, "kept": 1.0, "rows_inside": 1, "rows_outside": 0}
    rule = ScopeRule.model_validate(given)
    assert rule.identity == {**given, "caught": None, "separation": None}
    near = ScopeRule.model_validate(given | {"method": "knn", "column": 2})
    assert near.identity["column"] == 2


def test_answers_take_nearness_from_its_column_pooled_as_logits_are() -> None:
    outside = OutsideConfig(labels=("oos",))
    heads = {
        "one": HeadConfig(column="a", labels=("x", "y"), outside=outside),
        "two": HeadConfig(column="b", labels=("u", "v")),
    }
    rule = ScopeRule(method="knn", threshold=0.5, kept=1, rows_inside=1, rows_outside=1, column=4)
    (head, _) = head_slices(heads, scopes={"one": rule})
    logits = np.array(  # two heads of two, nearness, the windows' weight
        [[1.0, 0, 0, 0, 0.75, 0], [1.0, 0, 0, 0, 0.125, 0], [1.0, 0, 0, 0, 0.625, 0]]
    )
    alone, together = answers(
        logits, np.array([3, 3, 9]), np.array([1, 2]), head, pooling="attention"
    )
    assert (alone.scope, alone.outside) == (0.75, False)
    assert (together.scope, together.outside) == (0.375, True)
    _, longer = answers(logits[:, :5], np.array([3, 3, 9]), np.array([1, 2]), head)
    assert (longer.scope, longer.outside) == (0.5, False)  # by tokens, a quarter and three


@given(st.integers(1, 40), st.integers(2, 90), st.integers(0, 9))
def test_a_text_scores_the_same_bytes_alone_and_among_others(rows, labels, seed) -> None:
    logits = np.random.default_rng(seed).normal(0, 5, (rows, labels))
    for method in ("max_probability", "energy"):
        together = scope_scores(logits, method)
        alone = [scope_scores(logits[row : row + 1], method)[0] for row in range(rows)]
        assert together.tobytes() == np.array(alone).tobytes()
