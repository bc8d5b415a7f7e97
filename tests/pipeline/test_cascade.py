"""Two models in a row: who answers what, what is counted, and who is named for it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pipeline.bundle import scoring_flow
from pipeline.cascade import Cascade, CascadeInference, Saving, is_sure
from pipeline.flow import Prepared
from pipeline.heads import Answer, head_slices
from pipeline.inference import Inferred
from pipeline.rows import RawRow, Record
from pipeline.tables import Lineage, scores_table
from schemas.manifest import CascadeRef, ModelRef
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.task import TaskConfig

HEADS = head_slices(
    {
        "queue": HeadConfig(column="q", labels=("a", "b"), review_below=0.6),
        "mood": HeadConfig(column="m", labels=("bad", "good"), review_below=0.0),
    }
)
SMALL = ModelRef(name="tiny", version="2", digest="small")
LARGE = ModelRef(name="tiny", version="1", digest="large")
REF = CascadeRef(small=SMALL, thresholds={"queue": 0.5, "mood": 0.8})


class FakeInference:
    """Every text gets the confidences given for its number; none for NaN."""

    def __init__(self, label: int, confidences: Sequence[tuple[float, float]]) -> None:
        self.asked: list[list[int]] = []
        self._label, self._confidences = label, confidences

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        self.asked.append([item.record.source_row for item in items])
        return [self._infer(self._confidences[item.record.source_row]) for item in items]

    def _infer(self, confidences: tuple[float, float]) -> Inferred:
        answers = {
            head.name: Answer((head.config.labels[self._label],), each, np.array([each, 1 - each]))
            for head, each in zip(HEADS, confidences, strict=True)
        }
        sound = not np.isnan(confidences).any()
        return Inferred(
            answers=answers if sound else {}, decision="auto", spans=((0, 4),), truncated=False,
            windows_made=1 + self._label, windows_aggregated=1 + self._label, tokens=10,
        )  # fmt: skip


def items(n: int) -> list[Prepared]:
    return [
        Prepared(Record(f"r{i}", "f", i, ("t",), {}, b""), ("t",), f"{i:032x}", "en", (), False)
        for i in range(n)
    ]


def test_only_what_the_small_model_is_unsure_of_goes_to_the_large_one() -> None:
    nan = float("nan")
    # Sure; unsure of the mood; of the queue; for people; without an answer; sure at the threshold.
    confidences = [(0.9, 0.9), (0.9, 0.7), (0.4, 0.9), (0.55, 0.9), (nan, nan), (0.6, 0.8)]
    small, large = FakeInference(0, confidences), FakeInference(1, [(0.99, 0.99)] * 6)
    inferred = CascadeInference(small, large, REF, HEADS).infer(items(6))
    assert small.asked == [[0, 1, 2, 3, 4, 5]]
    assert large.asked == [[1, 2, 3, 4]]
    assert [each.model for each in inferred] == [SMALL, None, None, None, None, SMALL]
    assert [each.answers["queue"].labels[0] for each in inferred] == list("abbbba")
    assert [each.windows_made for each in inferred] == [1, 3, 3, 3, 3, 1]
    assert [each.tokens for each in inferred] == [10, 20, 20, 20, 20, 10]


def test_a_cascade_that_is_sure_of_all_leaves_the_large_model_alone() -> None:
    large = FakeInference(1, [(1.0, 1.0)])
    CascadeInference(FakeInference(0, [(0.9, 0.9)]), large, REF, HEADS).infer(items(1))
    assert large.asked == []


@pytest.mark.parametrize("remembered", [(True, True), (True, False), (False, True)])
def test_a_text_is_remembered_when_no_model_was_asked(remembered: tuple[bool, bool]) -> None:
    class Remembering(FakeInference):
        def __init__(self, label: int, answered: bool) -> None:
            super().__init__(label, [(0.1, 0.1)])
            self._remembered = answered

        def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
            return [
                dataclasses.replace(each, remembered=self._remembered)
                for each in super().infer(items)
            ]

    small, large = Remembering(0, remembered[0]), Remembering(1, remembered[1])
    (answer,) = CascadeInference(small, large, REF, HEADS).infer(items(1))
    assert answer.remembered is all(remembered)


def test_no_answer_is_not_sure() -> None:
    assert not is_sure({}, REF.thresholds, HEADS)


def test_rows_name_the_model_that_answered(tiny_bundle: Path, tiny_task: TaskConfig) -> None:
    """The same bundle stands for both models, so that only the names tell."""
    rows = [
        RawRow("a", n, {"ticket_id": f"t{n}", "subject": "invoice", "body": "card " * n}, b"raw")
        for n in range(1, 30)
    ]
    alone = scoring_flow(tiny_bundle, tiny_task).score(rows)
    confidences = sorted(row.answers["queue"].confidence for row in alone.scored)
    heads = {
        name: head.model_copy(update={"review_below": 0.0})
        for name, head in tiny_task.heads.items()
    }
    task = tiny_task.model_copy(update={"heads": heads})
    ref = CascadeRef(small=SMALL, thresholds={"queue": confidences[10], "topics": 0.0})
    flow = scoring_flow(tiny_bundle, task, saving=Saving(cascade=Cascade(ref, tiny_bundle)))
    outcome = flow.score(rows)
    table = scores_table(
        outcome.scored, task.heads, Lineage(dt.date(2026, 11, 28), LARGE, "c", "run")
    )
    by_digest = dict(
        zip(table["record_id"].to_pylist(), table["model_digest"].to_pylist(), strict=True)
    )
    expected = {
        row.prepared.record.record_id: (
            "small" if row.answers["queue"].confidence >= confidences[10] else "large"
        )
        for row in alone.scored
    }
    assert by_digest == expected
    assert set(by_digest.values()) == {"small", "large"}
    versions = {"small": "2", "large": "1"}
    assert table["model_version"].to_pylist() == [versions[d] for d in by_digest.values()]
    assert outcome.counters.texts_inferred == alone.counters.texts_inferred
    assert outcome.counters.windows_made > alone.counters.windows_made


def test_what_the_small_model_finds_outside_goes_to_the_large_one() -> None:
    sure = {head.name: Answer(("a",), 0.99, np.array([0.99, 0.01])) for head in HEADS}
    assert is_sure(sure, REF.thresholds, HEADS)
    outside = {**sure, "queue": dataclasses.replace(sure["queue"], scope=0.1, outside=True)}
    assert not is_sure(outside, REF.thresholds, HEADS)
