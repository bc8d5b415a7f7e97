"""Texts that none of a head's labels fits, and from where on people decide.

Scores are higher for texts like those the head was trained on. The maximum probability is the
baseline of Hendrycks & Gimpel 2017 (arXiv 1610.02136), the energy that of Liu et al. 2020 (arXiv
2010.03759): the log-sum-exp of the logits, which a softmax no longer knows. The third, `knn`, is
computed by the model beside its logits: see `pipeline.model.neighbours`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from schemas.scope import ScopeMethod, ScopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = npt.NDArray[np.float64]
LogitMethod = Literal["max_probability", "energy"]
LOGIT_METHODS: tuple[LogitMethod, ...] = get_args(LogitMethod)


class Nearness(NamedTuple):
    """The model's own score of each text `(N,)`, and the `column` of its output that it stands in.

    It is how like the text is to those that the head was trained with.
    """

    column: int
    scores: npt.NDArray[Any]


def scope_scores(logits: npt.NDArray[Any], method: LogitMethod) -> Array:
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


def rule_scores(rule: ScopeRule, logits: npt.NDArray[Any], outputs: npt.NDArray[Any]) -> Array:
    """How well each text fits `(N,)` by the rule's own method.

    `logits` `(N, L)` are the head's, divided by its temperature; `outputs` are all of the model's,
    `(N, M)` with `M` beyond the rule's column.
    """
    if rule.method == "knn":
        return np.asarray(outputs[:, rule.column], dtype=np.float64)
    return scope_scores(logits, rule.method)


def choose_rule(
    logits: npt.NDArray[Any],
    is_outside: npt.NDArray[np.bool_],
    *,
    keep: float,
    nearness: Nearness | None = None,
) -> ScopeRule:
    """The rule that leaves at least the share `keep` of the texts inside with the model.

    `logits` `(N, L)` are of validation texts. The method is the one that tells those outside best,
    `knn` among them where there is a `nearness`; of equals the cheaper one. Where no text is
    outside it is the energy, which is the better one in most of the literature's comparisons.

    Raises:
        ValueError: all texts are outside.
    """
    if is_outside.all():
        raise ValueError("a rule needs texts that a label fits")
    scores: dict[ScopeMethod, Array] = {
        method: scope_scores(logits, method) for method in LOGIT_METHODS
    }
    if nearness is not None:
        scores["knn"] = nearness.scores.astype(np.float64)
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
        column=nearness.column if nearness is not None and method == "knn" else None,
    )


class Shares(NamedTuple):
    """What a rule does: the share of texts inside that it keeps, and of others that it catches.

    None where there are no such texts.
    """

    kept: float | None
    caught: float | None


def measure_rule(
    rule: ScopeRule, scores: npt.NDArray[Any], is_outside: npt.NDArray[np.bool_]
) -> Shares:
    """What a rule does to other texts than those it was chosen on, of its `rule_scores` `(N,)`."""
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
