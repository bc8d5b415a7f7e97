"""Quality in numbers: macro-F1, accuracy with intervals, calibration error, temperatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from sklearn.metrics import f1_score

from pipeline.heads import MULTI_THRESHOLD, HeadSlice, probabilities
from schemas.bundle import HeadMetrics, LanguageMetrics

Floats = npt.NDArray[np.floating[Any]]
Targets = Mapping[str, npt.NDArray[Any]]

_BINS = 15  # as in Guo et al. 2017, "On Calibration of Modern Neural Networks"
_RESAMPLES = 500
_MIN_SLICE_ROWS = 30  # of fewer the interval of an accuracy is some 30 points wide
_TEMPERATURES = (0.25, 8.0)


def gate_metric(logits: Floats, targets: Targets, heads: tuple[HeadSlice, ...]) -> float:
    """Mean over heads of macro-F1: the one number that training and gates look at."""
    scores = []
    for head in heads:
        truth, predicted = known_pairs(logits, targets[head.name], head)
        if len(truth):
            scores.append(macro_f1(truth, predicted))
    return float(np.mean(scores)) if scores else 0.0


def known_pairs(
    logits: Floats, target: npt.NDArray[Any], head: HeadSlice
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Truth and prediction of the records whose label is known: `(N,)` or, for multi, `(N, L)`."""
    scores = probabilities(logits.astype(np.float64), head)
    if head.config.kind == "single":
        known = target >= 0
        return target[known].astype(np.int64), scores[known].argmax(axis=1)
    known = np.isfinite(target).all(axis=1)
    return target[known].astype(np.int64), (scores[known] >= MULTI_THRESHOLD).astype(np.int64)


def macro_f1(truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]) -> float:
    """Unweighted mean of F1 over the labels that occur in truth or prediction."""
    return float(f1_score(truth, predicted, average="macro", zero_division=0))


def head_metrics(
    scores: Floats,
    target: npt.NDArray[Any],
    head: HeadSlice,
    *,
    seed: int,
    langs: Sequence[str] | None = None,
) -> HeadMetrics:
    """Metrics of one head from aggregated probabilities `(N, L)`; intervals by bootstrap.

    For a `multi` head accuracy is the share of single yes/no answers that are right. With the
    language of each record, `langs`, the metrics hold those of each language too.
    """
    single = head.config.kind == "single"
    known = target >= 0 if single else np.isfinite(target).all(axis=1)
    truth, scores = target[known].astype(np.int64), scores[known]
    predicted = scores.argmax(axis=1) if single else (scores >= MULTI_THRESHOLD).astype(np.int64)
    if not len(truth):
        return HeadMetrics(
            rows=0, accuracy=0.0, accuracy_interval=(0.0, 0.0), macro_f1=0.0,
            macro_f1_interval=(0.0, 0.0), expected_calibration_error=0.0, majority_accuracy=0.0,
        )  # fmt: skip
    confidence = scores.max(axis=1) if single else np.maximum(scores, 1 - scores).ravel()
    return HeadMetrics(
        rows=len(truth),
        **_quality(truth, predicted, seed=seed),
        expected_calibration_error=calibration_error(confidence, (truth == predicted).ravel()),
        majority_accuracy=_majority_accuracy(truth),
        by_lang=_by_lang(truth, predicted, np.array(langs)[known], seed=seed) if langs else {},
    )


def _quality(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], *, seed: int
) -> dict[str, Any]:
    accuracies, f1s = _bootstrap(truth, predicted, seed=seed)
    return {
        "accuracy": float((truth == predicted).mean()),
        "accuracy_interval": _interval(accuracies),
        "macro_f1": macro_f1(truth, predicted),
        "macro_f1_interval": _interval(f1s),
    }


def _by_lang(
    truth: npt.NDArray[np.int64],
    predicted: npt.NDArray[np.int64],
    langs: npt.NDArray[np.str_],
    *,
    seed: int,
) -> dict[str, LanguageMetrics]:
    """Metrics by language, the most frequent first; a slice too small to tell is only counted."""
    names, counts = np.unique(langs, return_counts=True)
    slices = {}
    for place in np.argsort(-counts, kind="stable"):
        rows = langs == names[place]
        tells = counts[place] >= _MIN_SLICE_ROWS
        quality = _quality(truth[rows], predicted[rows], seed=seed) if tells else {}
        slices[str(names[place])] = LanguageMetrics(rows=int(counts[place]), **quality)
    return slices


def certain_drop(
    truth: npt.NDArray[np.int64],
    reference: npt.NDArray[np.int64],
    candidate: npt.NDArray[np.int64],
    *,
    seed: int = 0,
) -> float:
    """The macro-F1 drop from `reference` to `candidate` that is 95 % sure, by paired bootstrap.

    On few records one flipped label moves macro-F1 by more than any sensible bound; the 5 %
    quantile over resampled records says what of a drop is not just that.
    """
    if not len(truth):
        return 0.0
    chooser = np.random.default_rng(seed)
    drops = []
    for _ in range(_RESAMPLES):
        rows = chooser.integers(0, len(truth), len(truth))
        before = _fast_macro_f1(truth[rows], reference[rows])
        drops.append(before - _fast_macro_f1(truth[rows], candidate[rows]))
    return float(np.quantile(drops, 0.05))


def calibration_error(confidence: Floats, correct: npt.NDArray[np.bool_]) -> float:
    """Expected calibration error over 15 equal-width bins."""
    bins = np.clip((confidence * _BINS).astype(int), 0, _BINS - 1)
    error = 0.0
    for index in range(_BINS):
        inside = bins == index
        if inside.any():
            gap = abs(float(confidence[inside].mean()) - float(correct[inside].mean()))
            error += float(inside.mean()) * gap
    return error


def fit_temperature(logits: Floats, target: npt.NDArray[Any], head: HeadSlice) -> float:
    """Temperature that minimises the log loss on validation (Guo et al. 2017); 1.0 without data."""
    single = head.config.kind == "single"
    known = target >= 0 if single else np.isfinite(target).all(axis=1)
    if not known.any():
        return 1.0
    values, truth = logits[known].astype(np.float64), target[known]

    def loss(temperature: float) -> float:
        slice_ = HeadSlice(head.name, head.config, head.start, temperature)
        scores = np.clip(probabilities(values, slice_), 1e-12, 1.0)
        if single:
            return float(-np.log(scores[np.arange(len(truth)), truth]).mean())
        rest = np.clip(1.0 - scores, 1e-12, 1.0)
        return float(-(truth * np.log(scores) + (1 - truth) * np.log(rest)).mean())

    found = minimize_scalar(loss, bounds=_TEMPERATURES, method="bounded")
    return round(float(found.x), 4)


def _bootstrap(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], *, seed: int
) -> tuple[list[float], list[float]]:
    chooser = np.random.default_rng(seed)
    accuracies, f1s = [], []
    for _ in range(_RESAMPLES):
        rows = chooser.integers(0, len(truth), len(truth))
        accuracies.append(float((truth[rows] == predicted[rows]).mean()))
        f1s.append(_fast_macro_f1(truth[rows], predicted[rows]))
    return accuracies, f1s


def _fast_macro_f1(truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]) -> float:
    """The same as `macro_f1` by counting, 50 times as fast; resampling needs hundreds of them."""
    if truth.ndim == 2:
        hit = ((truth == 1) & (predicted == 1)).sum(axis=0)
        both = truth.sum(axis=0) + predicted.sum(axis=0)
        present = np.ones(len(both), dtype=bool)
    else:
        size = int(max(truth.max(), predicted.max())) + 1
        hit = np.bincount(truth[truth == predicted], minlength=size)
        both = np.bincount(truth, minlength=size) + np.bincount(predicted, minlength=size)
        present = both > 0
    scores = 2 * hit / np.maximum(both, 1)
    return float(scores[present].mean())


def _interval(values: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return round(float(low), 4), round(float(high), 4)


def _majority_accuracy(truth: npt.NDArray[np.int64]) -> float:
    if truth.ndim == 1:
        return float(np.bincount(truth).max() / len(truth))
    share = truth.mean(axis=0)
    return float(np.maximum(share, 1 - share).mean())
