"""What the step `finetune` says of its run once training is over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pipeline.heads import head_slices
from pipeline.model.checkpoint import load_checkpoint
from pipeline.model.curve_checks import NOT_FINITE_ADVICE
from pipeline.model.diagnose import diagnose, head_answers, log_diagnosis
from pipeline.model.findings import DataFacts, Diagnosis, Finding
from pipeline.model.label_errors import find_label_errors, save_suspects
from pipeline.model.record_logits import record_logits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.labelled_rows import LabelledData
    from pipeline.model.labelled import Example
    from schemas.errors import DivergenceError
    from schemas.task import TaskConfig
    from schemas.training import TrainingRun

DIAGNOSIS_FILE = "diagnosis.json"
SUSPECTS_FILE = "label_errors.parquet"

log = logging.getLogger(__name__)


def diagnose_divergence(place: TrainingRun, error: DivergenceError) -> Diagnosis:
    """What a run that ended with a loss which is no number leaves in its folder."""
    finding = Finding(
        kind="loss_not_finite", severity="problem", evidence=str(error), advice=NOT_FINITE_ADVICE
    )
    found = Diagnosis(findings=(finding,))
    found.write(place.folder / DIAGNOSIS_FILE)
    log_diagnosis(found)
    return found


def diagnose_run(
    config: TaskConfig,
    place: TrainingRun,
    data: LabelledData,
    *,
    history: Sequence[Mapping[str, float]],
    tokenizer: BackboneTokenizer,
) -> Diagnosis:
    """Reads curves, the best epoch's answers and the labels; leaves two files in the run's folder.

    Raises:
        ArtifactError: the run has no checkpoint.
    """
    heads = head_slices(config.heads)
    train, valid = (
        [example for example in data.examples if example.split == split]
        for split in ("train", "valid")
    )
    model = load_checkpoint(place.checkpoint, config.train, heads)
    logits = record_logits(model, valid, pad_id=tokenizer.pad_id, how=config.train.window_pooling)
    check = find_label_errors(data.examples, heads, seed=config.train.seed)
    save_suspects(check.suspects, place.folder / SUSPECTS_FILE)
    facts = DataFacts(
        rows=data.rows,
        near_duplicates=data.leakage.counts,
        label_errors=check.counts,
        judged=check.judged,
        agreement=check.agreement,
        unknown=_share_of(tokenizer.unk_id, train),
    )
    found = diagnose(history, answers=head_answers(logits, valid, train, heads), facts=facts)
    found.write(place.folder / DIAGNOSIS_FILE)
    log_diagnosis(found)
    return found


def _share_of(token: int | None, examples: Sequence[Example]) -> float:
    """How much of the windows' tokens this one is."""
    windows = [window.input_ids for example in examples for window in example.windows]
    found = sum(ids.count(token) for ids in windows if token is not None)
    return found / max(1, sum(map(len, windows)))
