"""How long the rest of training may take, told now and then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jobs.pace import Pace
from jobs.training import describe_epoch
from pipeline.model.fit import Progress

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(tmp_path: Path, clock: Clock, fake_train: Any) -> Pace:
    return Pace(tmp_path, clock=clock)


def told(folder: Path) -> list[dict[str, Any]]:
    path = folder / "epochs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_line_is_due_after_half_a_minute(pace: Pace, clock: Clock, tmp_path: Path) -> None:
    progress = Progress()
    for _ in range(40):
        progress.step += 1
        clock.now += 2
        pace.on_step(progress, 0.5, 100)
    lines = told(tmp_path)
    assert [line["step"] for line in lines] == [15, 30]
    assert lines[0] == {"in_epoch": 1, "step": 15, "steps": 100, "loss": 0.5, "left_s": 170.0}
    assert describe_epoch(lines[0]) == "epoch 1: step 15 of 100, loss 0.5000, 3 min left"


def test_a_resumed_run_is_paced_by_its_own_steps(pace: Pace, clock: Clock) -> None:
    progress = Progress(epoch=1, step=50)
    assert pace.left_s() == 0.0
    for _ in range(10):
        progress.step += 1
        clock.now += 3
        pace.on_step(progress, 0.5, 100)
    assert pace.left_s() == pytest.approx(120.0)  # 40 steps of 3 s


def test_an_epoch_s_end_is_a_line_of_its_own(pace: Pace, clock: Clock, tmp_path: Path) -> None:
    progress = Progress(step=1)
    clock.now += 29
    pace.end_epoch()
    clock.now += 29
    pace.on_step(progress, 0.5, 10)
    assert told(tmp_path) == []


@pytest.mark.parametrize(
    ("left_s", "end"), [(0.0, "(best so far)"), (260.0, "(best so far), at most 4 min left")]
)
def test_an_epoch_says_what_may_be_left(left_s: float, end: str) -> None:
    epoch = {
        "epoch": 2, "train_loss": 0.4, "valid_loss": 0.5, "valid_macro_f1": 0.8, "is_best": True,
        "left_s": left_s,
    }  # fmt: skip
    line = describe_epoch(epoch)
    assert line == (f"epoch 2: train loss 0.4000, valid loss 0.5000, valid macro-F1 0.8000 {end}")
