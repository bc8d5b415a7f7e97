"""Texts that none of a head's labels fits, and from where on people decide.

Scores are higher for texts like those the head was trained on. The maximum probability is the
baseline of Hendrycks & Gimpel 2017 (arXiv 1610.02136), the energy that of Liu et al. 2020 (arXiv
2010.03759): the log-sum-exp of the logits, which a softmax no longer knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.scope import SCOPE_METHODS, ScopeMethod, ScopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = npt.NDArray[np.float64]


def scope_scores(logits: npt.NDArray[Any], method: ScopeMethod) -> Array:
    """How well each text fits `(N,)` from a head's logits `(N, L)` divided by its temperature."""
    scaled = logits.astype(np.float64)
    best = scaled.max(axis=1)
    rest = np.log(np.exp(scaled - best[:, None]).sum(axis=1))
    return np.asarray(np.exp(-rest) if method == "max_probability" else best + rest)


def separation(inside: Array, outside: Array) -> float:
    """Probability that a text inside scores higher than one outside, ties counting half (AUROC)."""
    below = np.searchsorted(np.sort(outside), inside, side="left")
    not_above = np.searchsorted(np.sort(outside), inside, side="right")
    return float((below + not_above).mean() / 2 / len(outside))


def choose_rule(
    logits: npt.NDArray[Any], is_outside: npt.NDArray[np.bool_], *, keep: float
) -> ScopeRule:
    """The rule that leaves at least the share `keep` of the texts inside with the model.

    `logits` `(N, L)` are of validation texts. The method is the one that tells those outside best;
    where there are none of these it is the energy, which is the better one in most of the
    literature's comparisons.

    Raises:
        ValueError: all texts are outside.
    """
    if is_outside.all():
        raise ValueError("a rule needs texts that a label fits")
    scores = {method: scope_scores(logits, method) for method in SCOPE_METHODS}
    told: Mapping[ScopeMethod, float] = {}
    if is_outside.any():
        told = {name: separation(s[~is_outside], s[is_outside]) for name, s in scores.items()}
    method: ScopeMethod = max(told, key=told.__getitem__) if told else "energy"
    chosen = scores[method]
    threshold = _threshold(chosen[~is_outside], keep)
    shares = _shares(chosen, is_outside, threshold)
    return ScopeRule(
        method=method,
        threshold=threshold,
        kept=float((chosen[~is_outside] >= threshold).mean()),
        caught=shares.caught,
        rows_inside=int((~is_outside).sum()),
        rows_outside=int(is_outside.sum()),
        separation=told.get(method),
    )


class Shares(NamedTuple):
    """What a rule does: the share of texts inside that it keeps, and of others that it catches.

    None where there are no such texts.
    """

    kept: float | None
    caught: float | None


def measure_rule(
    rule: ScopeRule, logits: npt.NDArray[Any], is_outside: npt.NDArray[np.bool_]
) -> Shares:
    """What a rule does to other texts than those it was chosen on, of logits `(N, L)`."""
    scores = scope_scores(logits, rule.method)
    return _shares(scores, is_outside, rule.threshold)


def _shares(scores: Array, is_outside: npt.NDArray[np.bool_], threshold: float) -> Shares:
    is_below = scores < threshold
    return Shares(
        kept=None if is_outside.all() else float((~is_below[~is_outside]).mean()),
        caught=float(is_below[is_outside].mean()) if is_outside.any() else None,
    )


def _threshold(inside: Array, keep: float) -> float:
    """The highest score at which at least the share `keep` is not below it."""
    dropped = int(np.floor(round((1.0 - keep) * len(inside), 9)))
    return float(np.sort(inside)[min(dropped, len(inside) - 1)])
