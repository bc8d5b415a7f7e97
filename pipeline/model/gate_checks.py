"""What gates look at: finite outputs, neighbours, equal answers, quality lost, calibration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.heads import confidences, flags_of, predicted_labels
from pipeline.model.labelled import known_rows, label_matrix
from pipeline.model.metrics import certain_drop, certain_ece_rise, fit_temperature, head_metrics
from schemas.bundle import GateResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pipeline.heads import HeadSlice
    from pipeline.inference import Encoder
    from pipeline.model.labelled import Example
    from pipeline.model.outputs import Outputs
    from pipeline.window import Window
    from schemas.bundle import HeadMetrics
    from schemas.task import Variant

_INVARIANCE_WINDOWS = 64


def at_most(variant: Variant, gate: str, value: float, threshold: float) -> GateResult:
    """Passes up to `threshold`; NaN compares false with everything, and never passes."""
    return GateResult(
        variant=variant, gate=gate, value=value, rule="<=", threshold=threshold,
        passed=bool(value <= threshold),
    )  # fmt: skip


def at_least(variant: Variant, gate: str, value: float, threshold: float) -> GateResult:
    """Passes from `threshold` on; NaN never does."""
    return GateResult(
        variant=variant, gate=gate, value=value, rule=">=", threshold=threshold,
        passed=bool(value >= threshold),
    )  # fmt: skip


def finite_share(logits: Sequence[npt.NDArray[Any]]) -> float:
    """The share of records, each with logits `(W, L)`, that are finite to the last one."""
    return float(np.mean([np.isfinite(each).all() for each in logits]))


def neighbour_effect(encoder: Encoder, examples: Sequence[Example]) -> float:
    """Largest change of a window's logits when its neighbours in the call and the order change."""
    return window_neighbour_effect(encoder, [example.windows[0] for example in examples])


def window_neighbour_effect(encoder: Encoder, windows: Sequence[Window]) -> float:
    """The same of windows, the first 64 of them."""
    windows = windows[:_INVARIANCE_WINDOWS]
    together = encoder.logits(windows)
    backwards = encoder.logits(windows[::-1])[::-1]
    alone = np.concatenate([encoder.logits([window]) for window in windows])
    return float(np.max([np.abs(together - backwards).max(), np.abs(together - alone).max()]))


def agreement(reference: Outputs, candidate: Outputs, head: HeadSlice) -> float:
    """The share of answers of a head that are the same; of flags and aspects each is one."""
    mine = predicted_labels(candidate.scores(head), head)
    theirs = predicted_labels(reference.scores(head), head)
    return float((mine == theirs).mean())


def macro_f1_drop(
    reference: Outputs, candidate: Outputs, target: npt.NDArray[Any], head: HeadSlice
) -> float:
    """The drop in macro-F1 that is 95 % sure, over records with a `target` (a label matrix)."""
    known = known_rows(target)
    answers = [
        target[known].astype(np.int64),
        predicted_labels(reference.scores(head), head)[known].astype(np.int64),
        predicted_labels(candidate.scores(head), head)[known].astype(np.int64),
    ]
    is_aspect = head.config.kind == "aspect"
    if is_aspect:
        answers = [flags_of(each, head).astype(np.int64) for each in answers]
    return certain_drop(*answers, only_present=is_aspect)


def drop_by_language(
    reference: Outputs,
    candidate: Outputs,
    examples: Sequence[Example],
    head: HeadSlice,
    *,
    least_rows: int,
) -> dict[str, float]:
    """`macro_f1_drop` of each language with `least_rows` labels; none where there is only one."""
    target = label_matrix(examples, head.name, head.config)
    known, langs = known_rows(target), np.array([example.lang for example in examples])
    if len(set(langs)) < 2:
        return {}
    found = {}
    for lang in sorted(set(langs[known].tolist())):
        rows = np.flatnonzero(known & (langs == lang))
        if len(rows) >= least_rows:
            found[lang] = macro_f1_drop(
                reference.rows(rows), candidate.rows(rows), target[rows], head
            )
    return found


def calibrated(outputs: Outputs, target: npt.NDArray[Any], head: HeadSlice) -> HeadSlice:
    """The head with the temperature that fits these outputs: what a bundle of them would have."""
    return replace(head, temperature=fit_temperature(outputs.pooled_logits(), target, head))


def ece_rise(
    reference: Outputs, candidate: Outputs, target: npt.NDArray[Any], head: HeadSlice
) -> float:
    """The rise of the calibration error that is 95 % sure, each with a temperature of its own.

    NaN where a logit is.
    """
    if finite_share(candidate.logits) < 1.0:
        return float("nan")
    known = known_rows(target)
    if not known.any():
        return 0.0
    truth = target[known].astype(np.int64)
    measured = []
    for outputs in (reference, candidate):
        scores = outputs.scores(calibrated(outputs, target, head))[known]
        sure, right = confidences(scores, head), predicted_labels(scores, head) == truth
        measured.append((sure.reshape(len(truth), -1), right.reshape(len(truth), -1)))
    return certain_ece_rise(*measured)


def variant_metrics(
    outputs: Mapping[Variant, Outputs],
    examples: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    *,
    seed: int,
) -> dict[Variant, dict[str, HeadMetrics]]:
    """Quality of each variant by head, each with the temperatures that fit it.

    A variant whose logits are not all finite has none.
    """
    found: dict[Variant, dict[str, HeadMetrics]] = {}
    for variant, said in outputs.items():
        if finite_share(said.logits) < 1.0:
            continue
        found[variant] = {}
        for head in heads:
            target = label_matrix(examples, head.name, head.config)
            scores = said.scores(calibrated(said, target, head))
            found[variant][head.name] = head_metrics(scores, target, head, seed=seed)
    return found
