from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from pipeline.heads import HeadSlice
from pipeline.model.resampling import Patterns, interval
from schemas.task import HeadConfig

SINGLE = HeadSlice("q", HeadConfig(column="q", labels=("a", "b", "c", "d")), 0)
MULTI = HeadSlice("t", HeadConfig(kind="multi", column="t", labels=("x", "y", "z")), 0)


def test_scores_of_all_records_are_sklearns() -> None:
    chooser = np.random.default_rng(1)
    truth, predicted = chooser.integers(0, 3, (2, 200))  # the fourth label occurs nowhere
    patterns = Patterns.of(truth, predicted, head=SINGLE)
    assert patterns.counts.sum() == 200
    assert len(patterns.counts) == 9
    assert patterns.accuracy(patterns.counts) == pytest.approx((truth == predicted).mean())
    for average, found in (
        ("macro", patterns.f1(patterns.counts)),
        ("weighted", patterns.f1(patterns.counts, by_support=True)),
    ):
        assert found == pytest.approx(f1_score(truth, predicted, average=average, zero_division=0))


def test_scores_of_flags_are_sklearns() -> None:
    chooser = np.random.default_rng(2)
    truth, predicted = chooser.integers(0, 2, (2, 100, 3))
    truth[:, 2] = predicted[:, 2] = 0  # counts with 0 where every label is in the mean
    patterns = Patterns.of(truth, predicted, head=MULTI)
    assert patterns.accuracy(patterns.counts) == pytest.approx((truth == predicted).mean())
    wanted = f1_score(truth, predicted, average="macro", zero_division=0)
    assert patterns.f1(patterns.counts) == pytest.approx(wanted)


def test_resamples_are_as_large_as_the_set_and_the_same_for_a_seed() -> None:
    patterns = Patterns.of(np.array([0, 1, 1]), np.array([0, 1, 0]), head=SINGLE)
    first, again, other = (np.array(list(patterns.resamples(seed))) for seed in (3, 3, 4))
    assert first.shape == (500, 3)
    assert (first.sum(axis=1) == 3).all()
    assert (first == again).all()
    assert (first != other).any()


def test_an_interval_has_the_width_of_chance() -> None:
    truth = np.zeros(400, dtype=np.int64)
    predicted = np.array([0] * 320 + [1] * 80)
    patterns = Patterns.of(truth, predicted, head=SINGLE)
    low, high = interval(patterns, patterns.accuracy, seed=0)
    # 0.8 plus and minus 1.96 times sqrt(0.8 * 0.2 / 400)
    assert low == pytest.approx(0.7608, abs=0.012)
    assert high == pytest.approx(0.8392, abs=0.012)
    certain = Patterns.of(truth, truth, head=SINGLE)
    assert interval(certain, certain.f1, seed=0) == (1.0, 1.0)
