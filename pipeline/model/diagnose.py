"""A training run read as an experienced person would: what is wrong, by which number, what to try.

Pure functions of the run's history, the answers on validation records and facts about the data.
They are made to stay silent about a run that is well: each threshold stands beside its reason in
`curve_checks` and `answer_checks`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.heads import flags_of
from pipeline.model.answer_checks import (
    HeadAnswers,
    answer_findings,
    data_findings,
)
from pipeline.model.curve_checks import History, curve_findings
from pipeline.model.findings import DataFacts, Diagnosis
from pipeline.model.labelled import Example, known_rows, label_matrix
from pipeline.model.metrics import Floats, known_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.heads import HeadSlice

log = logging.getLogger(__name__)


def diagnose(history: History, *, answers: Sequence[HeadAnswers], facts: DataFacts) -> Diagnosis:
    """Findings about the curve, the answers and the data, in this order."""
    return Diagnosis(
        findings=(*curve_findings(history), *answer_findings(answers), *data_findings(facts)),
        label_errors=dict(facts.label_errors),
        judged=dict(facts.judged),
        agreement=dict(facts.agreement),
    )


def head_answers(
    logits: Floats,
    valid: Sequence[Example],
    train: Sequence[Example],
    heads: tuple[HeadSlice, ...],
) -> list[HeadAnswers]:
    """Truth and answers of each head from the logits `(N, L)` of the validation records.

    A head whose labels are known of no validation record is left out.
    """
    answers = []
    for head in heads:
        truth, predicted = known_pairs(logits, label_matrix(valid, head.name, head.config), head)
        if len(truth):
            answers.append(
                HeadAnswers(
                    head.name, head.config.answer_labels, flags_of(truth, head),
                    flags_of(predicted, head), train_rows=_label_counts(train, head),
                )
            )  # fmt: skip
    return answers


def _label_counts(examples: Sequence[Example], head: HeadSlice) -> npt.NDArray[np.int64]:
    """Records of each label `(L,)`; those whose label is not known count nowhere."""
    target = label_matrix(examples, head.name, head.config)
    known = target[known_rows(target)].astype(np.int64)
    return np.asarray(flags_of(known, head).sum(axis=0), dtype=np.int64)


def log_diagnosis(diagnosis: Diagnosis) -> None:
    """One log line a finding, or one that there is none."""
    for finding in diagnosis.findings:
        log.warning("diagnosis: %s %s", finding.severity, finding)
    if not diagnosis.findings:
        log.info("diagnosis: nothing stands out")
