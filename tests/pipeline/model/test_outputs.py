"""Outputs of a model on labelled records, pooled as the nightly job pools them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pipeline.heads import answer, head_slices, pool_logits
from pipeline.model.labelled import OUTSIDE, Example, label_matrix
from pipeline.model.metrics import head_metrics
from pipeline.model.outputs import Outputs, fit_scope, run_encoder, with_scope
from pipeline.window import Window
from schemas.errors import DataContractError
from schemas.head import HeadConfig, OutsideConfig
from schemas.scope import ScopeRule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.heads import HeadSlice
    from schemas.task import WindowPooling


class Fake:
    """Six logits of a window from its tokens, the last of which may be its weight."""

    def logits(self, windows: Sequence[Window]) -> np.ndarray:
        return np.array([np.sin(np.arange(6) * sum(w.input_ids)) for w in windows], np.float32)


@pytest.fixture
def records(make_example: Callable[..., Example]) -> list[Example]:
    """Records of one, two and three windows."""
    one = make_example("a")
    windows = [Window(tuple(range(2, 5 + n)), (0,) * (3 + n), 0, 1) for n in range(6)]
    counts = [windows[:1], windows[1:3], windows[3:]]
    return [type(one)(**{**vars(one), "windows": tuple(some)}) for some in counts]


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "attention"])
def test_scores_are_those_of_the_nightly_job(
    pooling: WindowPooling, records: list[Example], toy_heads: tuple[HeadSlice, ...]
) -> None:
    outputs = run_encoder(Fake(), records, pooling=pooling)
    assert (outputs.pooling, len(outputs.logits)) == (pooling, 3)
    width = 5 if pooling == "attention" else 6
    assert outputs.pooled_logits().shape == (3, width)
    for row, record in enumerate(records):
        logits = Fake().logits(record.windows).astype(np.float64)
        n_tokens = np.array([window.n_tokens for window in record.windows])
        for head in toy_heads:
            expected = answer(logits, n_tokens, head, pooling=pooling)
            assert outputs.scores(head)[row].tobytes() == expected.scores.tobytes()
        expected_logits = pool_logits(logits, n_tokens, pooling)
        assert outputs.pooled_logits()[row].tobytes() == expected_logits.tobytes()


def test_the_first_records_are_pooled_alike(records: list[Example]) -> None:
    outputs = run_encoder(Fake(), records, pooling="max").first(2)
    assert (outputs.pooling, len(outputs.logits), len(outputs.n_tokens)) == ("max", 2, 2)
    assert Outputs((), ()).pooling == "mean"


ASKED = HeadConfig(column="q", labels=("a", "b"), outside=OutsideConfig(labels=("oos",), keep=0.75))


def records_with(*targets: int | None) -> list[Example]:
    return [
        Example(f"r{row}", "0" * 32, "valid", "en", ("x",), (), {"q": target})
        for row, target in enumerate(targets)
    ]


def outputs_of(*logits: list[float]) -> Outputs:
    return Outputs(tuple(np.array([row]) for row in logits), (np.array([3]),) * len(logits))


def test_a_rule_is_learnt_of_records_that_are_known_to_be_inside_or_outside() -> None:
    (head,) = head_slices({"q": ASKED}, {"q": 2.0})
    records = records_with(0, 0, 1, 1, OUTSIDE, None)
    rows = [[9.0, 0], [8.0, 0], [0, 7.0], [0, 6.0], [1.0, 0], [500.0, 0]]
    rule = fit_scope(outputs_of(*rows), records, head)
    assert rule is not None
    # Three of four are to stay; both methods tell perfectly, and the first one wins.
    assert rule.method == "max_probability"
    assert rule.threshold == pytest.approx(1 / (1 + np.exp(-3.5)))
    assert (rule.kept, rule.caught, rule.separation) == (0.75, 1.0, 1.0)
    assert (rule.rows_inside, rule.rows_outside) == (4, 1)


def test_a_head_that_asks_for_no_rule_gets_none() -> None:
    (head,) = head_slices({"q": ASKED.model_copy(update={"outside": None})})
    assert fit_scope(outputs_of([1.0, 0.0]), records_with(0), head) is None


def test_a_rule_needs_known_labels() -> None:
    (head,) = head_slices({"q": ASKED})
    with pytest.raises(DataContractError, match=r"head 'q': no validation record .*q\.outside"):
        fit_scope(outputs_of([1.0, 0.0], [2.0, 0.0]), records_with(None, OUTSIDE), head)


def test_metrics_tell_what_a_rule_does_to_held_out_records() -> None:
    rule = ScopeRule(method="energy", threshold=3.0, kept=0.9, rows_inside=9, rows_outside=0)
    (head,) = head_slices({"q": ASKED}, {"q": 2.0}, scopes={"q": rule})
    records = records_with(0, 1, 1, OUTSIDE, OUTSIDE, None)
    # By the temperature 4, 2 and 5 inside, 0 and 3.5 outside, each and what the other logit adds.
    rows = [[8.0, -90], [4.0, -90], [-90, 10.0], [0.0, -90], [7.0, -90], [0, 0]]
    outputs = outputs_of(*rows)
    target = label_matrix(records, "q", ASKED)
    plain = head_metrics(outputs.scores(head), target, head, seed=1)
    found = with_scope(plain, outputs, records, head)
    assert (found.inside_kept, found.outside_caught) == (pytest.approx(2 / 3), 0.5)
    assert (found.outside_rows, found.rows) == (2, 3)
    gone = {"inside_kept": None, "outside_caught": None, "outside_rows": None}
    assert found.model_copy(update=gone) == plain
    nobody = with_scope(plain, outputs.first(3), records[:3], head)
    assert (nobody.outside_caught, nobody.outside_rows) == (None, 0)
    assert with_scope(plain, outputs, records, replace(head, scope_rule=None)) == plain
