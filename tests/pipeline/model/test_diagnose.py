"""What answers and data say of a run, and the diagnosis as a whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pipeline.heads import HeadSlice
from pipeline.model.answer_checks import HeadAnswers, answer_findings, data_findings
from pipeline.model.checkpoint import new_classifier
from pipeline.model.diagnose import diagnose, head_answers, log_diagnosis
from pipeline.model.findings import DataFacts, Diagnosis, Finding
from pipeline.model.fit import fit
from pipeline.model.recipe import Recipe
from pipeline.model.record_logits import record_logits
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.labelled import Example
    from schemas.task import TrainConfig

LABELS = ("a", "b", "c")
GOOD = [
    {"epoch": 1, "train_loss": 1.0, "valid_loss": 0.8, "valid_macro_f1": 0.6},
    {"epoch": 2, "train_loss": 0.5, "valid_loss": 0.6, "valid_macro_f1": 0.8},
]


def answers(truth: list[int], predicted: list[int]) -> HeadAnswers:
    marks = np.eye(3, dtype=bool)
    return HeadAnswers(
        "queue", LABELS, marks[truth], marks[predicted], train_rows=np.array([90, 80, 7])
    )


def test_answers_like_the_truth_raise_no_alarm() -> None:
    truth = [0, 1, 2] * 10
    assert answer_findings([answers(truth, truth)]) == []
    assert answer_findings([answers([0] * 28 + [1] * 2, [0] * 30)]) == []  # most really are so


def test_one_answer_for_all_is_a_collapse_and_told_once() -> None:
    (finding,) = answer_findings([answers([0, 1, 2] * 10, [1] * 30)])
    assert (finding.kind, finding.severity) == ("one_class_collapse", "problem")
    assert finding.evidence == (
        "head 'queue' answers 'b' to 100.0% of 30 validation records, people to 33.3%"
    )
    assert "heads.queue.loss_weight" in finding.advice


def test_several_labels_collapse_to_none() -> None:
    truth = np.array([[1, 0], [0, 1], [0, 0]] * 10, dtype=bool)
    head = HeadAnswers("tags", ("x", "y"), truth, np.zeros_like(truth), np.array([5, 5]))
    (finding,) = answer_findings([head])
    assert "answers no label to 100.0% of 30 validation records, people to 33.3%" in (
        finding.evidence
    )


def test_a_few_records_are_no_evidence_of_collapse() -> None:
    assert answer_findings([answers([0, 1, 1], [1, 1, 1])]) == []


def test_a_label_never_predicted_is_told_with_its_rows() -> None:
    truth = [0] * 14 + [1] * 13 + [2] * 3
    (finding,) = answer_findings([answers(truth, [0] * 14 + [1] * 16)])
    assert finding.kind == "label_never_predicted"
    assert finding.evidence == (
        "head 'queue' never answers 1 of 3 labels: 'c' (7 training rows, 3 validation rows)"
    )
    two = [0] * 14 + [1] * 13 + [2] * 2
    assert answer_findings([answers(two, [0] * 14 + [1] * 15)]) == []


def test_leaks_are_told_where_they_are_many() -> None:
    rows = {"train": 900, "valid": 100, "test": 100}
    few = DataFacts(rows=rows, near_duplicates={"train-test": 8, "train-valid": 0})
    assert data_findings(few) == []
    many = DataFacts(rows=rows, near_duplicates={"train-test": 100, "valid-test": 1})
    (finding,) = data_findings(many)
    assert finding.kind == "leakage"
    assert finding.evidence == (
        "100 of 1000 train records stand nearly in test; they were left out"
    )


def test_words_that_the_vocabulary_cannot_spell_are_told_where_they_are_many() -> None:
    assert data_findings(DataFacts(unknown=0.0499)) == []
    (finding,) = data_findings(DataFacts(unknown=0.627))
    assert finding.kind == "unknown_words"
    assert finding.evidence == (
        "the backbone's vocabulary cannot spell 62.7% of the training texts' tokens, "
        "which are all one token to it"
    )
    assert "pretrain.new_tokens" in finding.advice


def test_label_errors_are_told_where_they_are_more_than_doubt() -> None:
    few = DataFacts(
        label_errors={"queue": 29, "other": 9}, judged={"queue": 1000, "other": 100},
        agreement={"queue": 0.9, "other": 0.9},
    )  # fmt: skip
    assert data_findings(few) == []
    unsure = DataFacts(
        label_errors={"queue": 200}, judged={"queue": 1000}, agreement={"queue": 0.73}
    )
    assert data_findings(unsure) == []
    many = replace(unsure, label_errors={"queue": 40}, agreement={"queue": 0.85})
    (finding,) = data_findings(many)
    assert finding.kind == "label_errors"
    assert finding.evidence == "40 of 1000 labels of head 'queue' look wrong"


def test_a_diagnosis_gathers_all_and_reads_back(tmp_path: Path) -> None:
    facts = DataFacts(
        rows={"train": 90}, near_duplicates={"train-test": 10}, label_errors={"queue": 50},
        judged={"queue": 100}, agreement={"queue": 0.9},
    )  # fmt: skip
    found = diagnose(GOOD, answers=[answers([0, 1, 2] * 10, [1] * 30)], facts=facts)
    assert found.tag == "one_class_collapse,leakage,label_errors"
    assert (found.label_errors, found.judged) == ({"queue": 50}, {"queue": 100})
    assert found.agreement == {"queue": 0.9}
    found.write(tmp_path / "diagnosis.json")
    assert Diagnosis.read(tmp_path / "diagnosis.json") == found


def test_a_sound_run_is_tagged_none() -> None:
    found = diagnose(GOOD, answers=[answers([0, 1, 2] * 10, [0, 1, 2] * 10)], facts=DataFacts())
    assert (found.findings, found.tag) == ((), "none")


@pytest.mark.parametrize(
    ("rate", "kind"),
    [
        (3e-3, "none"),
        (1e-2, "none"),
        (1e-6, "plateau"),
        (2e-4, "learning_rate_too_low"),
        (0.1, "one_class_collapse"),
        (3.0, "learning_rate_too_high"),
    ],
)
def test_a_real_run_is_read_as_it_is(
    toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig], rate: float, kind: str,
) -> None:  # fmt: skip
    train, valid = (
        [example for example in toy_examples if example.split == split]
        for split in ("train", "valid")
    )
    config = toy_config(head_learning_rate=rate, patience_epochs=4)
    model = new_classifier(config, toy_heads)
    recipe = Recipe(4, rate, "a test", batch_size=8, head_learning_rate=rate)
    progress = fit(model, train=train, valid=valid, heads=toy_heads, config=config, recipe=recipe)
    logits = record_logits(model, valid, pad_id=0)
    answers = head_answers(logits, valid, train, toy_heads)
    found = diagnose(progress.history, answers=answers, facts=DataFacts())
    assert kind in found.tag.split(",")


def test_a_kind_stands_in_the_tag_once() -> None:
    finding = Finding(kind="plateau", severity="warning", evidence="e", advice="a")
    assert Diagnosis(findings=(finding, finding)).tag == "plateau"


def test_findings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    finding = Finding(kind="plateau", severity="warning", evidence="e", advice="try b")
    log_diagnosis(Diagnosis(findings=(finding,)))
    log_diagnosis(Diagnosis())
    assert caplog.messages == [
        "diagnosis: warning plateau: e; try b", "diagnosis: nothing stands out"
    ]  # fmt: skip


ASPECT = HeadConfig(kind="aspect", column="q", labels=("bad", "good"), aspects=("food", "staff"))


@pytest.mark.parametrize(
    ("config", "targets", "logits", "labels", "truth", "predicted", "train_rows"),
    [
        (
            HeadConfig(column="q", labels=LABELS), [2, None], [[0, 9, 0], [9, 0, 0]],
            LABELS, [[0, 0, 1]], [[0, 1, 0]], [0, 0, 1],
        ),
        (
            HeadConfig(kind="multi", column="q", labels=("x", "y")), [(1, 0), None],
            [[-9, 9], [9, 9]], ("x", "y"), [[1, 0]], [[0, 1]], [1, 0],
        ),
        (
            ASPECT, [(0, 2), None], [[0, 9, 0, 0, 0, 9], [0] * 6],
            ("food:bad", "food:good", "staff:bad", "staff:good"),
            [[0, 0, 0, 1]], [[1, 0, 0, 1]], [0, 0, 0, 1],
        ),
    ],
)  # fmt: skip
def test_answers_are_flags_of_every_kind_of_head(
    make_example: Callable[..., Example], config: HeadConfig, targets: list[Any],
    logits: list[list[float]], labels: tuple[str, ...], truth: list[list[int]],
    predicted: list[list[int]], train_rows: list[int],
) -> None:  # fmt: skip
    records = [
        type(example)(**{**vars(example), "targets": {"q": target}})
        for example, target in zip([make_example("r"), make_example("s")], targets, strict=True)
    ]
    (found,) = head_answers(np.array(logits), records, records, (HeadSlice("q", config, 0),))
    assert found.labels == labels
    assert found.truth.astype(int).tolist() == truth
    assert found.predicted.astype(int).tolist() == predicted
    assert found.train_rows.tolist() == train_rows


def test_a_head_without_known_labels_has_no_answers(make_example: Callable[..., Example]) -> None:
    head = HeadSlice("queue", HeadConfig(column="q", labels=LABELS), 0)
    records = [make_example("r", queue=None)]
    assert head_answers(np.zeros((1, 3)), records, records, (head,)) == []
