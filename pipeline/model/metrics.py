"""Quality in numbers: macro-F1, accuracy with intervals, calibration error, temperatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from sklearn.metrics import f1_score

from pipeline.heads import (
    HeadSlice,
    by_aspect,
    confidences,
    flags_of,
    predicted_labels,
    probabilities,
)
from pipeline.model.labelled import known_rows
from schemas.bundle import HeadMetrics, LanguageMetrics

Floats = npt.NDArray[np.floating[Any]]
Targets = Mapping[str, npt.NDArray[Any]]

_BINS = 15  # as in Guo et al. 2017, "On Calibration of Modern Neural Networks"
_RESAMPLES = 500
MIN_SLICE_ROWS = 30  # of fewer the interval of an accuracy is some 30 points wide
_TEMPERATURES = (0.25, 8.0)


def gate_metric(logits: Floats, targets: Targets, heads: tuple[HeadSlice, ...]) -> float:
    """Mean over heads of macro-F1: the one number that training and gates look at."""
    scores = []
    for head in heads:
        truth, predicted = known_pairs(logits, targets[head.name], head)
        if len(truth):
            scores.append(head_macro_f1(truth, predicted, head))
    return float(np.mean(scores)) if scores else 0.0


def known_pairs(
    logits: Floats, target: npt.NDArray[Any], head: HeadSlice
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Truth and prediction of the records whose label is known.

    `(N,)`, for `multi` flags `(N, L)`, for `aspect` choices `(N, A)`, of which 0 is none.
    """
    scores = probabilities(logits.astype(np.float64), head)
    known = known_rows(target)
    predicted = predicted_labels(scores[known], head)
    return target[known].astype(np.int64), predicted.astype(np.int64)


def macro_f1(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], *, only_present: bool = False
) -> float:
    """Unweighted mean of F1 over labels: of indices `(N,)` those that occur in either.

    Of flags `(N, L)` all, as sklearn has it, or with `only_present` those that are set in either.
    """
    if only_present:
        return _fast_macro_f1(truth, predicted, only_present=True)
    return float(f1_score(truth, predicted, average="macro", zero_division=0))


def head_macro_f1(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], head: HeadSlice
) -> float:
    """Macro-F1 of what `known_pairs` gives.

    Of an `aspect` head over pairs of aspect and label, such as `food:positive`, that occur in
    truth or prediction: whether none is said of an aspect is seen in the F1 of its other pairs. 0
    where no pair occurs at all.
    """
    if head.config.kind == "aspect":
        return macro_f1(*_pair_flags(truth, predicted, head), only_present=True)
    return macro_f1(truth, predicted)


def _pair_flags(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], head: HeadSlice
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return flags_of(truth, head).astype(np.int64), flags_of(predicted, head).astype(np.int64)


def head_metrics(
    scores: Floats,
    target: npt.NDArray[Any],
    head: HeadSlice,
    *,
    seed: int,
    langs: Sequence[str] | None = None,
) -> HeadMetrics:
    """Metrics of one head from pooled probabilities `(N, L)`; intervals by bootstrap.

    For a `multi` head accuracy is the share of single yes/no answers that are right, for an
    `aspect` head that of aspects with the right choice, none among them; macro-F1 is
    `head_macro_f1`. With the language of each record, `langs`, the metrics hold those of each
    language too.
    """
    known = known_rows(target)
    truth, scores = target[known].astype(np.int64), scores[known]
    predicted = predicted_labels(scores, head).astype(np.int64)
    if not len(truth):
        return HeadMetrics(
            rows=0, accuracy=0.0, accuracy_interval=(0.0, 0.0), macro_f1=0.0,
            macro_f1_interval=(0.0, 0.0), expected_calibration_error=0.0, majority_accuracy=0.0,
        )  # fmt: skip
    by_lang = {}
    if langs:
        by_lang = _by_lang(truth, predicted, head, np.array(langs)[known], seed=seed)
    return HeadMetrics(
        rows=len(truth),
        **_quality(truth, predicted, head, seed=seed),
        expected_calibration_error=calibration_error(
            confidences(scores, head).ravel(), (truth == predicted).ravel()
        ),
        majority_accuracy=_majority_accuracy(truth),
        by_lang=by_lang,
    )


def _quality(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], head: HeadSlice, *, seed: int
) -> dict[str, Any]:
    accuracies, f1s = _bootstrap(truth, predicted, head, seed=seed)
    return {
        "accuracy": float((truth == predicted).mean()),
        "accuracy_interval": _interval(accuracies),
        "macro_f1": head_macro_f1(truth, predicted, head),
        "macro_f1_interval": _interval(f1s),
    }


def _by_lang(
    truth: npt.NDArray[np.int64],
    predicted: npt.NDArray[np.int64],
    head: HeadSlice,
    langs: npt.NDArray[np.str_],
    *,
    seed: int,
) -> dict[str, LanguageMetrics]:
    """Metrics by language, the most frequent first; a slice too small to tell is only counted."""
    names, counts = np.unique(langs, return_counts=True)
    slices = {}
    for place in np.argsort(-counts, kind="stable"):
        rows = langs == names[place]
        tells = counts[place] >= MIN_SLICE_ROWS
        quality = _quality(truth[rows], predicted[rows], head, seed=seed) if tells else {}
        slices[str(names[place])] = LanguageMetrics(rows=int(counts[place]), **quality)
    return slices


def certain_drop(
    truth: npt.NDArray[np.int64],
    reference: npt.NDArray[np.int64],
    candidate: npt.NDArray[np.int64],
    *,
    seed: int = 0,
    only_present: bool = False,
) -> float:
    """The macro-F1 drop from `reference` to `candidate` that is 95 % sure, by paired bootstrap.

    On few records one flipped label moves macro-F1 by more than any sensible bound; the 5 %
    quantile over resampled records says what of a drop is not just that. `only_present` leaves
    flags out of the mean that are nowhere set, as they are to be of pairs of aspect and label.
    """
    if not len(truth):
        return 0.0
    chooser = np.random.default_rng(seed)
    drops = []
    for _ in range(_RESAMPLES):
        rows = chooser.integers(0, len(truth), len(truth))
        before = _fast_macro_f1(truth[rows], reference[rows], only_present=only_present)
        after = _fast_macro_f1(truth[rows], candidate[rows], only_present=only_present)
        drops.append(before - after)
    return float(np.quantile(drops, 0.05))


def calibration_error(confidence: Floats, correct: npt.NDArray[np.bool_]) -> float:
    """Expected calibration error over 15 equal-width bins."""
    bins = _bins_of(confidence)
    error = 0.0
    for index in range(_BINS):
        inside = bins == index
        if inside.any():
            gap = abs(float(confidence[inside].mean()) - float(correct[inside].mean()))
            error += float(inside.mean()) * gap
    return error


def certain_ece_rise(
    reference: tuple[Floats, npt.NDArray[np.bool_]],
    candidate: tuple[Floats, npt.NDArray[np.bool_]],
    *,
    seed: int = 0,
) -> float:
    """The rise of the calibration error that is 95 % sure, by paired bootstrap over records.

    Each side has confidences `(N, K)` of a record's K answers, and whether they are right.
    """
    chooser = np.random.default_rng(seed)
    sides = [(_bins_of(sure), sure - right) for sure, right in (reference, candidate)]
    rises = []
    for _ in range(_RESAMPLES):
        rows = chooser.integers(0, len(sides[0][0]), len(sides[0][0]))
        before, after = (
            # A bin's share times its gap is the sum of its answers' gaps, by the number of answers.
            np.abs(np.bincount(bins[rows].ravel(), gaps[rows].ravel(), minlength=_BINS)).sum()
            / gaps.size
            for bins, gaps in sides
        )
        rises.append(after - before)
    return float(np.quantile(rises, 0.05))


def _bins_of(confidence: Floats) -> npt.NDArray[np.intp]:
    return np.clip((confidence * _BINS).astype(np.intp), 0, _BINS - 1)


def fit_temperature(logits: Floats, target: npt.NDArray[Any], head: HeadSlice) -> float:
    """Temperature that minimises the log loss on validation (Guo et al. 2017); 1.0 without data."""
    known = known_rows(target)
    if not known.any():
        return 1.0
    values, truth = logits[known].astype(np.float64), target[known]

    def loss(temperature: float) -> float:
        slice_ = replace(head, temperature=temperature)
        scores = np.clip(probabilities(values, slice_), 1e-12, 1.0)
        if head.config.kind != "multi":
            grid = by_aspect(scores, head) if head.config.kind == "aspect" else scores
            wanted = truth.astype(np.int64)[..., None]
            return float(-np.log(np.take_along_axis(grid, wanted, axis=-1)).mean())
        rest = np.clip(1.0 - scores, 1e-12, 1.0)
        return float(-(truth * np.log(scores) + (1 - truth) * np.log(rest)).mean())

    found = minimize_scalar(loss, bounds=_TEMPERATURES, method="bounded")
    return round(float(found.x), 4)


def _bootstrap(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], head: HeadSlice, *, seed: int
) -> tuple[list[float], list[float]]:
    chooser = np.random.default_rng(seed)
    accuracies, f1s = [], []
    is_aspect = head.config.kind == "aspect"
    marks, found = _pair_flags(truth, predicted, head) if is_aspect else (truth, predicted)
    for _ in range(_RESAMPLES):
        rows = chooser.integers(0, len(truth), len(truth))
        accuracies.append(float((truth[rows] == predicted[rows]).mean()))
        f1s.append(_fast_macro_f1(marks[rows], found[rows], only_present=is_aspect))
    return accuracies, f1s


def _fast_macro_f1(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], *, only_present: bool = False
) -> float:
    """The same as `macro_f1` by counting, 50 times as fast; resampling needs hundreds of them.

    Of flags `(N, L)` sklearn's mean is over all columns, `only_present` over those that are set
    anywhere.
    """
    if truth.ndim == 2:
        hit = ((truth == 1) & (predicted == 1)).sum(axis=0)
        both = truth.sum(axis=0) + predicted.sum(axis=0)
        present = both > 0 if only_present else np.ones(len(both), dtype=bool)
    else:
        size = int(max(truth.max(), predicted.max())) + 1
        hit = np.bincount(truth[truth == predicted], minlength=size)
        both = np.bincount(truth, minlength=size) + np.bincount(predicted, minlength=size)
        present = both > 0
    scores = 2 * hit / np.maximum(both, 1)
    return float(scores[present].mean()) if present.any() else 0.0


def _interval(values: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return round(float(low), 4), round(float(high), 4)


def _majority_accuracy(truth: npt.NDArray[np.int64]) -> float:
    """The accuracy of whom always says the most frequent, of each column where there are some."""
    columns = truth.reshape(len(truth), -1).T
    return float(np.mean([np.bincount(column).max() for column in columns]) / len(truth))
