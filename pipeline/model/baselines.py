"""What a model must beat to be worth its cost: the majority, and a linear model over TF-IDF."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from pipeline.model.labelled import Example, known_rows, label_matrix
from pipeline.model.metrics import head_macro_f1
from pipeline.model.text_features import MAX_ROWS, joined_texts, sampled, tfidf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.heads import HeadSlice

MAJORITY, LINEAR = "majority", "tfidf_linear"
_CS = (0.1, 1.0, 10.0)
_DEFAULT_C = 1.0  # scikit-learn's, where there are no validation records to choose by
_CHOICE_ROWS = 10_000  # the best C on so many rows is that on all of them, for a fraction of time

Baselines = dict[str, dict[str, dict[str, float]]]
Truth = npt.NDArray[np.int64]

log = logging.getLogger(__name__)


def measure_baselines(
    splits: Mapping[str, Sequence[Example]], heads: tuple[HeadSlice, ...], *, seed: int
) -> Baselines:
    """By head and baseline: `accuracy`, `macro_f1`, `rows` measured on, `train_rows` fitted on.

    They are fitted on training records, at most `MAX_ROWS` of them, and measured on test records,
    on validation records where there are none; then C is not chosen on these. A head without
    measured records has no entry, one with a single label in training the majority alone.
    """
    train = sampled(splits["train"], limit=MAX_ROWS, seed=seed)
    measured = splits["test"] or splits["valid"]
    chosen_on = splits["valid"] if splits["test"] else ()
    if not train or not measured:
        return {}
    features = tfidf(len(train))
    texts = {"train": features.fit_transform(joined_texts(train))}
    for name, examples in (("measured", measured), ("chosen_on", chosen_on)):
        texts[name] = features.transform(joined_texts(examples)) if examples else None
    made: Baselines = {}
    for head in heads:
        data = {
            name: _known(texts[name], examples, head)
            for name, examples in (
                ("train", train), ("measured", measured), ("chosen_on", chosen_on),
            )
        }  # fmt: skip
        if len(data["measured"][1]) and len(data["train"][1]):
            made[head.name] = _measure(data, head, seed=seed)
    log.info("baselines: %s", _in_words(made))
    return made


def _known(texts: Any, examples: Sequence[Example], head: HeadSlice) -> tuple[Any, Truth]:
    """Features and truth of the records whose label is known."""
    if not examples:
        return None, np.empty(0, dtype=np.int64)
    target = label_matrix(examples, head.name, head.config)
    known = known_rows(target)
    return texts[np.flatnonzero(known)], target[known].astype(np.int64)


def _measure(
    data: Mapping[str, tuple[Any, Truth]], head: HeadSlice, *, seed: int
) -> dict[str, dict[str, float]]:
    (train_x, train_y), (test_x, truth) = data["train"], data["measured"]
    rows = {"rows": len(truth), "train_rows": len(train_y)}
    found = {MAJORITY: _scores(truth, _majority(train_y, len(truth)), head) | rows}
    if len(np.unique(train_y, axis=0)) > 1:
        c = _choose_c(train_x, train_y, *data["chosen_on"], head, seed=seed)
        predicted = _fit_and_predict(train_x, train_y, test_x, c=c, seed=seed)
        found[LINEAR] = _scores(truth, predicted, head) | rows
    return found


def _choose_c(
    train_x: Any, train_y: Truth, valid_x: Any, valid_y: Truth, head: HeadSlice, *, seed: int
) -> float:
    """The C with the best macro-F1 on validation records, the smallest of equal ones."""
    if not len(valid_y):
        return _DEFAULT_C
    rows = np.random.default_rng(seed).permutation(len(train_y))[:_CHOICE_ROWS]
    scores = []
    for c in _CS:
        predicted = _fit_and_predict(train_x[rows], train_y[rows], valid_x, c=c, seed=seed)
        scores.append(_scores(valid_y, predicted, head)["macro_f1"])
    return _CS[int(np.argmax(scores))]


def _fit_and_predict(texts: Any, truth: Truth, others: Any, *, c: float, seed: int) -> Truth:
    """Labels of `others`; of a head with several answers, a model for each of them."""
    if truth.ndim == 2:
        columns = [_fit_and_predict(texts, column, others, c=c, seed=seed) for column in truth.T]
        return np.column_stack(columns)
    if len(np.unique(truth)) == 1:
        return np.full(others.shape[0], truth[0])
    with warnings.catch_warnings():
        # A fit that is not quite finished is still a baseline.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LinearSVC(C=c, random_state=seed).fit(texts, truth)
    return np.asarray(model.predict(others))


def _majority(train: Truth, rows: int) -> Truth:
    """The most frequent answer for all, for each where a head gives several."""
    if train.ndim == 2:
        return np.column_stack([_majority(column, rows) for column in train.T])
    return np.full(rows, np.bincount(train).argmax())


def _scores(truth: Truth, predicted: Truth, head: HeadSlice) -> dict[str, float]:
    """Accuracy and macro-F1 as `head_metrics` counts them."""
    return {
        "accuracy": float((truth == predicted).mean()),
        "macro_f1": head_macro_f1(truth, predicted, head),
    }


def _in_words(made: Baselines) -> str:
    return "; ".join(
        f"{head} {name} accuracy {scores['accuracy']:.4f}, macro-F1 {scores['macro_f1']:.4f}"
        for head, by_name in made.items()
        for name, scores in by_name.items()
    )
