"""What the curves of a training run say: each check answers with findings, none when all is well.

Numbers of an epoch that a run does not record (`grad_norm_mean` and the like) are asked by no
check, so that runs of older versions can be read as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

from pipeline.model.findings import Finding

History = Sequence[Mapping[str, float]]

# A mean over all batches of an epoch rises by some percent when the order of rows is unlucky; half
# as much again is something that happened to the weights.
SPIKE_FACTOR = 1.5
# With the linear decay of the rate the last epoch alone moves little: three in a row do not.
PLATEAU_EPOCHS = 3
PLATEAU_LOSS_FALL = 0.01
PLATEAU_F1_GAIN = 0.005
# A loss under this share of the first epoch's says that the run learnt and is simply done.
LEARNT_SHARE = 0.6
# Valid loss rises by some percent in good runs, since confidence grows while answers stay right.
OVERFITTING_VALID_RISE = 1.25
OVERFITTING_TRAIN_FALL = 0.75
# Norms before clipping of an encoder with fresh heads are some 1 to 20; at these they are not.
EXPLODED_NORM = 100.0
EXPLODED_GROWTH = 10.0
GROWN_NORM = 25.0  # growth from a small norm to a usual one is no explosion
VANISHED_NORM = 1e-3
VANISHED_LOSS = 0.05  # at such a loss there is nothing left to learn, and a small norm is right
RISING_LOSS = 1.05
WILD_LOSS = 20.0  # to guess among a million labels costs 14
# Three epochs of a rate that fits take a third and more off the loss.
TOO_LOW_FALL = 0.10
TOO_LOW_EPOCHS = 3
# The last fall against the first: with a rate that goes to zero in a line, the last of four epochs
# has a seventh of the first one's, while a run that nears its end falls by less than that.
STEADY_SHARE = 0.1
NOISE_EPOCHS = 5  # fewer show no pattern
NOISE_CHANGE = 0.05
NOISE_TURNS = 0.6


NOT_FINITE_ADVICE = (
    "try a tenth of train.learning_rate, a train.max_grad_norm of 0.5, and train.precision=fp32 if "
    "it is another; if it stays, look for a backbone with broken weights"
)


def curve_findings(history: History) -> list[Finding]:
    """Findings of all checks; after a loss that is not finite no other number means anything."""
    if not history:
        return []
    if broken := not_finite(history):
        return broken
    checks = (
        loss_spike, plateau, overfitting, gradient_explosion, gradient_vanishing,
        learning_rate_too_high, learning_rate_too_low, batch_noise,
    )  # fmt: skip
    return [finding for check in checks for finding in check(history)]


def not_finite(history: History) -> list[Finding]:
    """A loss or gradient norm that is NaN or infinite."""
    for row in history:
        for name in ("train_loss", "valid_loss", "grad_norm_mean", "grad_norm_max"):
            if not math.isfinite(row.get(name, 0.0)):
                return [
                    Finding(
                        kind="loss_not_finite",
                        severity="problem",
                        evidence=f"{_words(name)} is {row[name]} in epoch {_epoch(row)}",
                        advice=NOT_FINITE_ADVICE,
                    )
                ]
    return []


def loss_spike(history: History) -> list[Finding]:
    """The train loss of an epoch far above the lowest one before it."""
    lowest = history[0]["train_loss"]
    for row in history[1:]:
        loss = row["train_loss"]
        if loss > SPIKE_FACTOR * lowest and loss > VANISHED_LOSS:
            return [
                Finding(
                    kind="loss_spike",
                    severity="warning",
                    evidence=f"train loss jumped from {lowest:.4g} to {loss:.4g} in epoch "
                    f"{_epoch(row)}",
                    advice="try half of train.learning_rate, a larger train.warmup_fraction, or a "
                    "smaller train.max_grad_norm",
                )
            ]
        lowest = min(lowest, loss)
    return []


def plateau(history: History) -> list[Finding]:
    """Neither loss nor macro-F1 moves any more, though little of the loss is gone."""
    if len(history) <= PLATEAU_EPOCHS:
        return []
    before, last = history[-1 - PLATEAU_EPOCHS], history[-1]
    if before["train_loss"] <= 0 or last["train_loss"] <= LEARNT_SHARE * history[0]["train_loss"]:
        return []
    fall = 1 - last["train_loss"] / before["train_loss"]
    gain = last["valid_macro_f1"] - before["valid_macro_f1"]
    if not (abs(fall) < PLATEAU_LOSS_FALL and abs(gain) < PLATEAU_F1_GAIN):
        return []
    return [
        Finding(
            kind="plateau",
            severity="warning",
            evidence=f"over the last {PLATEAU_EPOCHS} epochs train loss went from "
            f"{before['train_loss']:.4g} to {last['train_loss']:.4g} and valid macro-F1 by "
            f"{gain:+.4f}",
            advice="try a higher train.learning_rate, fewer train.frozen_layers or another "
            "train.backbone; if labels contradict each other, no setting helps",
        )
    ]


def overfitting(history: History) -> list[Finding]:
    """Valid loss rises well above its lowest while train loss goes on falling."""
    best = min(range(len(history)), key=lambda place: history[place]["valid_loss"])
    low, last = history[best], history[-1]
    rises = last["valid_loss"] > OVERFITTING_VALID_RISE * low["valid_loss"]
    falls = last["train_loss"] < OVERFITTING_TRAIN_FALL * low["train_loss"]
    if not (rises and falls):
        return []
    return [
        Finding(
            kind="overfitting",
            severity="warning",
            evidence=f"from epoch {_epoch(low)} to {_epoch(last)} valid loss rose from "
            f"{low['valid_loss']:.4g} to {last['valid_loss']:.4g} while train loss fell from "
            f"{low['train_loss']:.4g} to {last['train_loss']:.4g}",
            advice=f"try train.epochs={_epoch(low)}, a higher train.dropout, "
            "train.label_smoothing=0.1 or train.r_drop_alpha=1, or more labelled rows",
        )
    ]


def gradient_explosion(history: History) -> list[Finding]:
    """Gradient norms, before clipping, far above what they are in a run that learns."""
    lowest = math.inf
    for row in history:
        norm = row.get("grad_norm_mean")
        if norm is None:
            return []
        has_grown = norm > GROWN_NORM and norm > EXPLODED_GROWTH * lowest
        if norm > EXPLODED_NORM or has_grown:
            since = f", {norm / lowest:.3g} times its lowest" if has_grown else ""
            return [
                Finding(
                    kind="gradient_explosion",
                    severity="problem",
                    evidence=f"the mean gradient norm of epoch {_epoch(row)} is {norm:.4g}{since}",
                    advice="try half of train.learning_rate, a larger train.warmup_fraction and a "
                    "smaller train.max_grad_norm",
                )
            ]
        lowest = min(lowest, norm)
    return []


def gradient_vanishing(history: History) -> list[Finding]:
    """Gradient norms near nothing though the loss is about where it was at first."""
    first = history[0]["train_loss"]
    for row in history:
        norm, loss = row.get("grad_norm_mean"), row["train_loss"]
        is_unlearnt = loss > VANISHED_LOSS and loss > LEARNT_SHARE * first
        if norm is not None and norm < VANISHED_NORM and is_unlearnt:
            return [
                Finding(
                    kind="gradient_vanishing",
                    severity="problem",
                    evidence=f"the mean gradient norm of epoch {_epoch(row)} is {norm:.3g} at a "
                    f"train loss of {loss:.4g}",
                    advice="try fewer train.frozen_layers, a higher train.head_learning_rate or "
                    "another train.backbone",
                )
            ]
    return []


def learning_rate_too_high(history: History) -> list[Finding]:
    """Train loss ends above where it began, rises in most epochs, or is worse than any guess."""
    losses = [row["train_loss"] for row in history]
    rises = sum(after > RISING_LOSS * before for before, after in pairwise(losses))
    has_risen = losses[-1] > RISING_LOSS * losses[0] or rises > (len(losses) - 1) / 2
    if losses[0] <= WILD_LOSS and (losses[-1] <= VANISHED_LOSS or not has_risen):
        return []
    what = f"rose in {rises} of {len(losses) - 1} steps between epochs" if has_risen else "is wild"
    return [
        Finding(
            kind="learning_rate_too_high",
            severity="problem",
            evidence=f"train loss {what}, from {losses[0]:.4g} in epoch 1 to {losses[-1]:.4g} in "
            f"the last{_rate(history)}",
            advice="try a third of train.learning_rate and of train.head_learning_rate, or a "
            "larger train.warmup_fraction",
        )
    ]


def learning_rate_too_low(history: History) -> list[Finding]:
    """Train loss falls by little in each epoch, as much in the last ones as in the first."""
    if len(history) < TOO_LOW_EPOCHS:
        return []
    losses = [row["train_loss"] for row in history]
    falls = [before - after for before, after in pairwise(losses)]
    total = 1 - losses[-1] / losses[0] if losses[0] > VANISHED_LOSS else 1.0
    is_steady = min(falls) > 0 and falls[-1] > STEADY_SHARE * falls[0]
    if not (is_steady and PLATEAU_LOSS_FALL < total < TOO_LOW_FALL):
        return []
    return [
        Finding(
            kind="learning_rate_too_low",
            severity="warning",
            evidence=f"in {len(losses)} epochs train loss fell by {total:.1%} only, from "
            f"{losses[0]:.4g} to {losses[-1]:.4g}, and was still falling{_rate(history)}",
            advice="try three times train.learning_rate, or more train.epochs",
        )
    ]


def batch_noise(history: History) -> list[Finding]:
    """Valid loss swings up and down, in the second half of the run as much as in the first."""
    if len(history) < NOISE_EPOCHS:
        return []
    losses = [row["valid_loss"] for row in history]
    changes = [after - before for before, after in pairwise(losses)]
    turns = sum(before * after < 0 for before, after in pairwise(changes)) / (len(changes) - 1)
    half = len(changes) // 2
    early, late = (mean(map(abs, part)) for part in (changes[:half], changes[half:]))
    if turns < NOISE_TURNS or late < early or late < NOISE_CHANGE * mean(losses):
        return []
    return [
        Finding(
            kind="batch_noise",
            severity="warning",
            evidence=f"valid loss changed direction in {turns:.0%} of the epochs, by {early:.3g} "
            f"on average in the first half of the run and by {late:.3g} in the second",
            advice="try a larger train.batch_size, a lower train.learning_rate, or a larger "
            "train.valid_fraction if there are few validation records",
        )
    ]


def _rate(history: History) -> str:
    rate = history[0].get("learning_rate")
    return "" if rate is None else f"; the rate was {rate:.3g} when epoch 1 ended"


def _epoch(row: Mapping[str, float]) -> int:
    return int(row["epoch"])


def _words(name: str) -> str:
    return name.replace("_", " ").replace("grad norm", "gradient norm")
