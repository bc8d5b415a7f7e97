"""Labels that are probably wrong, found by confident learning (Northcutt et al. 2021, cleanlab).

The method wants probabilities of each record from a model that has not seen its label. They come
from logistic regression over TF-IDF in five folds: the encoder would have to be trained five times
for them, and a linear model doubts the same gross errors in seconds. Its doubts are hints for
people, never a reason to change a label by itself. Records are the unit of a fold, so a copy of a
record with the same wrong label hides it; texts with two labels are told of elsewhere.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from pipeline.model.labelled import OUTSIDE, Example, label_matrix
from pipeline.model.text_features import MAX_ROWS, joined_texts, sampled, tfidf
from schemas.manifest import Document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice

_FOLDS = 5  # a label with fewer records cannot be in every fold, so that it is not judged
_MIN_ROWS = 50  # a model of fewer doubts at random
_MAX_SCORES = 2_000_000  # records times labels, some three minutes of one CPU
_MAX_WEIGHTS = 3_000_000  # features times labels; the solver keeps some twenty copies of them

log = logging.getLogger(__name__)


class Suspect(Document):
    """A record whose label is doubted; `confidence` is the probability of the likely one."""

    record_id: str
    head: str
    given: str
    likely: str
    confidence: float


@dataclass(frozen=True)
class LabelCheck:
    """Suspects, the surest first; by head, how many records were judged and agreed with."""

    suspects: tuple[Suspect, ...] = ()
    judged: Mapping[str, int] = field(default_factory=dict)
    agreement: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Suspects by head, also of heads without any."""
        return {
            name: sum(suspect.head == name for suspect in self.suspects) for name in self.judged
        }


def find_label_errors(
    examples: Sequence[Example], heads: tuple[HeadSlice, ...], *, seed: int
) -> LabelCheck:
    """Checks the heads with one label a record, on records of all splits.

    Of large sets a sample is looked at, smaller the more labels there are.
    """
    suspects: list[Suspect] = []
    judged, agreement = dict[str, int](), dict[str, float]()
    for head in heads:
        if head.config.kind != "single":
            continue
        known = [one for one in examples if one.targets[head.name] not in (None, OUTSIDE)]
        limit = min(MAX_ROWS, _MAX_SCORES // len(head.config.labels))
        chosen, labels = _judgeable(sampled(known, limit=limit, seed=seed), head)
        if len(chosen) < _MIN_ROWS or len(np.unique(labels)) < 2:
            continue
        found, agreement[head.name] = _judge(chosen, labels, head, seed=seed)
        judged[head.name] = len(chosen)
        suspects += found
    suspects.sort(key=lambda suspect: (-suspect.confidence, suspect.record_id, suspect.head))
    return LabelCheck(tuple(suspects), judged, agreement)


def save_suspects(suspects: Sequence[Suspect], path: Path) -> None:
    """Writes suspects as Parquet, in their order."""
    pq.write_table(pa.Table.from_pylist([one.model_dump() for one in suspects], _SCHEMA), path)


def load_suspects(path: Path) -> tuple[Suspect, ...]:
    """Reads what `save_suspects` wrote."""
    return tuple(Suspect(**row) for row in pq.read_table(path).to_pylist())


_SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("head", pa.string()),
        ("given", pa.string()),
        ("likely", pa.string()),
        ("confidence", pa.float64()),
    ]
)


def _judgeable(
    examples: Sequence[Example], head: HeadSlice
) -> tuple[list[Example], npt.NDArray[np.int64]]:
    """Records, and indices of their labels `(N,)`, whose label is frequent enough for all folds."""
    labels = label_matrix(examples, head.name, head.config)
    frequent = np.bincount(labels, minlength=1)[labels] >= _FOLDS if len(labels) else labels
    rows = np.flatnonzero(frequent).tolist()
    return [examples[row] for row in rows], labels[rows].astype(np.int64)


def _judge(
    examples: Sequence[Example], labels: npt.NDArray[np.int64], head: HeadSlice, *, seed: int
) -> tuple[list[Suspect], float]:
    """Doubtful records, and the share of all whose label the judge gives as well."""
    # It takes half a second to import and is needed once a training.
    from cleanlab.filter import find_label_issues  # noqa: PLC0415

    names, given = np.unique(labels, return_inverse=True)
    scores = _out_of_fold(joined_texts(examples), given, seed=seed)
    # `both` asks for doubt by label and by pair of labels: fewer false alarms than either.
    doubted = find_label_issues(given, scores, filter_by="both", n_jobs=1)
    likely = scores.argmax(axis=1)
    suspects = [
        Suspect(
            record_id=examples[row].record_id,
            head=head.name,
            given=head.config.labels[names[given[row]]],
            likely=head.config.labels[names[likely[row]]],
            confidence=round(float(scores[row, likely[row]]), 4),
        )
        for row in np.flatnonzero(doubted & (likely != given)).tolist()
    ]
    return suspects, float((likely == given).mean())


def _out_of_fold(
    texts: Sequence[str], labels: npt.NDArray[np.int64], *, seed: int
) -> npt.NDArray[np.float64]:
    """Probabilities `(N, L)` of each text from a model fitted without it."""
    width = _MAX_WEIGHTS // (int(labels.max()) + 1)
    # Frequencies of words know no label, so that one vocabulary for all folds gives nothing away.
    features = tfidf(len(texts), max_features=min(width, 30_000)).fit_transform(texts)
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    model: Any = LogisticRegression(tol=1e-3, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # unfinished by a hair is good enough
        scores = cross_val_predict(model, features, labels, cv=folds, method="predict_proba")
    return np.asarray(scores, dtype=np.float64)
