"""Each kind of finding has a run that shows it; a sound run shows none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipeline.model.curve_checks import curve_findings

# Loss and F1 of sound runs: a quick one, a slow one that is stopped early, one with noisy labels.
HEALTHY = {
    "quick": ([1.0, 0.42, 0.22, 0.15], [0.6, 0.35, 0.33, 0.34], [0.7, 0.84, 0.86, 0.862]),
    "short": ([0.8, 0.5], [0.6, 0.55], [0.7, 0.75]),
    "single epoch": ([0.9], [0.7], [0.6]),
    "wide": (
        [4.2, 2.6, 1.2, 0.7, 0.5, 0.43], [3.4, 1.6, 0.8, 0.6, 0.52, 0.5],
        [0.2, 0.66, 0.83, 0.88, 0.9, 0.905],
    ),
    "overconfident": (
        [0.7, 0.42, 0.31, 0.25, 0.21], [0.5, 0.44, 0.45, 0.48, 0.5], [0.78, 0.82, 0.83, 0.83, 0.83]
    ),
    "noisy labels": (
        [1.1, 0.86, 0.79, 0.75, 0.735], [0.9, 0.83, 0.81, 0.81, 0.812],
        [0.6, 0.68, 0.7, 0.703, 0.704],
    ),
    "learnt by heart": ([0.5, 0.02, 0.001, 0.0011], [0.3, 0.1, 0.1, 0.1], [0.9, 0.98, 0.98, 0.98]),
}  # fmt: skip
NORMS = [6.0, 4.1, 3.0, 2.5, 2.4, 2.2]


def history(
    train: list[float], valid: list[float], f1: list[float], **more: list[float]
) -> list[dict[str, float]]:
    columns = {"train_loss": train, "valid_loss": valid, "valid_macro_f1": f1, **more}
    return [
        {"epoch": float(place + 1), **{name: values[place] for name, values in columns.items()}}
        for place in range(len(train))
    ]


def healthy(**changes: Any) -> list[dict[str, float]]:
    train, valid, f1 = HEALTHY["quick"]
    columns = {"train": train, "valid": valid, "f1": [*f1], **changes}
    n = min(map(len, columns.values()))
    return history(**{name: values[:n] for name, values in columns.items()})


def kinds(rows: list[dict[str, float]]) -> list[str]:
    return [finding.kind for finding in curve_findings(rows)]


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("has_norms", [True, False])
def test_a_sound_run_raises_no_alarm(name: str, has_norms: bool) -> None:
    train, valid, f1 = HEALTHY[name]
    n = min(len(train), len(f1))
    more = {"grad_norm_mean": NORMS[:n], "grad_norm_max": [30.0] * n} if has_norms else {}
    assert kinds(history(train[:n], valid[:n], f1[:n], **more)) == []


def test_no_epoch_no_finding() -> None:
    assert curve_findings([]) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["train", "valid", "grad_norm_mean"])
def test_what_is_not_finite_is_the_only_finding(name: str, value: float) -> None:
    changes = {name: [0.5, value, 0.5]}
    (finding,) = curve_findings(healthy(**changes))
    assert (finding.kind, finding.severity) == ("loss_not_finite", "problem")
    assert f"is {value} in epoch 2" in finding.evidence
    assert "train.learning_rate" in finding.advice


def test_a_spike_is_told_with_its_epoch() -> None:
    rows = healthy(train=[1.0, 0.4, 0.9, 0.3])
    (finding,) = curve_findings(rows)
    assert finding.kind == "loss_spike"
    assert finding.evidence == "train loss jumped from 0.4 to 0.9 in epoch 3"


def test_a_plateau_is_a_loss_that_stays_high() -> None:
    stuck = history([1.0, 0.91, 0.909, 0.908, 0.907], [1.0] * 5, [0.3, 0.4, 0.401, 0.402, 0.402])
    (finding,) = curve_findings(stuck)
    assert finding.kind == "plateau"
    assert "over the last 3 epochs train loss went from 0.91 to 0.907" in finding.evidence
    assert "+0.0020" in finding.evidence


def test_overfitting_names_the_epoch_to_stop_at() -> None:
    rows = history([1.0, 0.5, 0.2, 0.06], [0.8, 0.6, 0.75, 0.9], [0.6, 0.7, 0.7, 0.69])
    (finding,) = curve_findings(rows)
    assert finding.kind == "overfitting"
    assert "from epoch 2 to 4 valid loss rose from 0.6 to 0.9" in finding.evidence
    assert "train.epochs=2" in finding.advice


def test_gradients_explode_by_size_and_by_growth() -> None:
    (finding,) = curve_findings(healthy(grad_norm_mean=[5.0, 180.0, 8.0]))
    assert finding.kind == "gradient_explosion"
    assert finding.evidence.startswith("the mean gradient norm of epoch 2 is 180")
    (grown,) = curve_findings(healthy(grad_norm_mean=[2.0, 3.0, 40.0]))
    assert grown.evidence == "the mean gradient norm of epoch 3 is 40, 20 times its lowest"
    assert kinds(healthy(grad_norm_mean=[0.1, 3.0, 4.0])) == []


def test_gradients_vanish_only_while_there_is_something_to_learn() -> None:
    rows = healthy(train=[1.0, 0.99, 0.97], grad_norm_mean=[2e-4, 1e-4, 1e-4])
    assert "gradient_vanishing" in kinds(rows)
    done = healthy(train=[0.5, 0.02, 0.01], grad_norm_mean=[2.0, 5e-4, 1e-4])
    assert kinds(done) == []


def test_a_rate_too_high_lets_the_loss_rise() -> None:
    rows = history(
        [1.0, 1.2, 1.3], [1.0, 1.1, 1.2], [0.3, 0.3, 0.3], learning_rate=[3e-3, 2e-3, 0.0]
    )
    (finding,) = curve_findings(rows)
    assert finding.kind == "learning_rate_too_high"
    assert finding.evidence == (
        "train loss rose in 2 of 2 steps between epochs, from 1 in epoch 1 to 1.3 in the last; "
        "the rate was 0.003 when epoch 1 ended"
    )


def test_a_loss_worse_than_any_guess_is_a_rate_too_high() -> None:
    assert kinds(history([80.0, 40.0], [30.0, 25.0], [0.1, 0.1])) == ["learning_rate_too_high"]
    assert kinds(history([14.0, 4.0], [9.0, 3.0], [0.1, 0.3])) == []


def test_a_rate_too_low_falls_by_little_in_each_epoch() -> None:
    rows = history([1.0, 0.98, 0.96, 0.94], [1.0, 0.99, 0.98, 0.97], [0.2, 0.22, 0.24, 0.26])
    (finding,) = curve_findings(rows)
    assert finding.kind == "learning_rate_too_low"
    assert "in 4 epochs train loss fell by 6.0% only" in finding.evidence
    assert "when epoch 1 ended" not in finding.evidence


def test_noise_is_a_valid_loss_that_swings_on() -> None:
    valid = [0.6, 0.5, 0.65, 0.48, 0.66, 0.47]
    rows = history([1.0, 0.7, 0.6, 0.5, 0.45, 0.42], valid, [0.6] * 6)
    (finding,) = curve_findings(rows)
    assert finding.kind == "batch_noise"
    assert "changed direction in 100% of the epochs" in finding.evidence
    settling = [0.6, 0.5, 0.55, 0.52, 0.53, 0.525]
    assert kinds(history([1.0, 0.7, 0.6, 0.5, 0.45, 0.42], settling, [0.6] * 6)) == []
    assert kinds(history([1.0, 0.7, 0.6, 0.5], valid[:4], [0.6] * 4)) == []
