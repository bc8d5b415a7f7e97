"""One head's evaluation by hand, and what of a bundle goes into it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.metrics import f1_score

from pipeline.heads import HeadSlice
from pipeline.model.evaluation import evaluate_head, weighted_f1
from pipeline.model.labelled import label_matrix
from pipeline.model.metrics import head_metrics
from schemas.task import DataConfig, HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.evaluation import HeadEvaluation
    from pipeline.model.labelled import Example

DATA = DataConfig(incoming="i/*.csv", id_column="id", text_columns=("text",))
SINGLE = HeadSlice("queue", HeadConfig(column="queue", labels=("a", "b", "c")), 0)
MULTI = HeadSlice("topics", HeadConfig(kind="multi", column="topics", labels=("x", "y")), 0)


def evaluated(head: HeadSlice, scores: np.ndarray, records: list[Example]) -> HeadEvaluation:
    target = label_matrix(records, head.name, head.config)
    return evaluate_head(
        scores, records, head, data=DATA, seed=1, baselines={"majority": {"accuracy": 0.5}},
        metrics=head_metrics(scores, target, head, seed=1),
    )  # fmt: skip


def test_a_single_head_by_hand(make_example: Callable[..., Example]) -> None:
    records = [
        replace(make_example(f"r{n}", queue=n % 3 if n else None), lang="en" if n % 2 else "de")
        for n in range(61)
    ]
    scores = np.full((61, 3), 0.1)
    for n in range(61):
        scores[n, (n % 3) if n % 6 else 1] = 0.8  # each third `a` is answered as `b`
    found = evaluated(SINGLE, scores, records)
    assert found.metrics.rows == 60
    assert found.matrix == ((10, 10, 0), (0, 20, 0), (0, 0, 20))
    (confusion,) = found.confusions
    assert (confusion.truth, confusion.predicted, confusion.rows, confusion.share) == (
        "a", "b", 10, 0.5,
    )  # fmt: skip
    assert found.exact_match is None
    assert found.weighted_f1 == pytest.approx((2 / 3 + 0.8 + 1) / 3)
    assert found.weighted_f1_interval[0] < found.weighted_f1 < found.weighted_f1_interval[1]
    assert {name: by.rows for name, by in found.slices["language"].items()} == {"de": 30, "en": 30}
    assert found.slices["language"]["en"].accuracy == 1.0
    assert found.slices["language"]["de"].accuracy == pytest.approx(2 / 3)
    assert found.baselines == {"majority": {"accuracy": 0.5}}
    assert sum(each.rows for each in found.reliability) == 60


def test_a_multi_head_has_no_confusions(make_example: Callable[..., Example]) -> None:
    records = [make_example(f"r{n}", topics=(n % 2, 1)) for n in range(40)]
    scores = np.array([[0.9 if n % 2 else 0.1, 0.9 if n % 4 else 0.2] for n in range(40)])
    found = evaluated(MULTI, scores, records)
    assert (found.matrix, found.confusions) == ((), ())
    assert found.exact_match == 0.75
    assert found.metrics.accuracy == 0.875
    assert (found.auroc.value, found.auroc.labels) == (1.0, 1)
    assert [each.support for each in found.labels] == [20, 40]
    assert found.slices == {} or "language" not in found.slices


def test_weighted_f1_is_sklearns() -> None:
    chooser = np.random.default_rng(5)
    truth, predicted = chooser.integers(0, 3, (2, 90))
    value, (low, high) = weighted_f1(truth, predicted, SINGLE, seed=1)
    assert value == pytest.approx(f1_score(truth, predicted, average="weighted"))
    assert low < value < high
    assert weighted_f1(truth, predicted, SINGLE, seed=1) == (value, (low, high))
