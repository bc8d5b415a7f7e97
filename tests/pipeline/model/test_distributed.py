"""Several workers must train as one does, and none may wait for another for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.labelled import save_examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Train = Callable[..., list[dict[str, Any]]]

    from pipeline.model.labelled import Example
    from schemas.task import TaskConfig

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.fixture
def train(tiny_task: TaskConfig, tmp_path: Path) -> Train:
    """Runs `world` ranks and answers what each of them saw."""

    def run(
        examples: Sequence[Example], *, world: int, batch_size: int = 8, poison: bool = False
    ) -> list[dict[str, Any]]:
        folder = tmp_path / f"world{world}"
        folder.mkdir()
        recipe = tiny_task.train.model_copy(update={"dropout": 0.0, "batch_size": batch_size})
        task = tiny_task.model_copy(update={"train": recipe})
        work = {"task": task.model_dump(mode="json"), "poison": poison}
        (folder / "work.json").write_text(json.dumps(work))
        save_examples(examples, folder / "examples.parquet")
        ranks = [
            subprocess.Popen(
                [sys.executable, str(WORKER), str(rank), str(world), str(folder)],
                stderr=subprocess.PIPE,
            )
            for rank in range(world)
        ]
        for rank in ranks:
            _, errors = rank.communicate(timeout=120)
            assert rank.returncode == 0, errors.decode()[-2000:]
        return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]

    return run


def assert_same_training(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(one["history"]) == len(other["history"]) == 2
    for mine, theirs in zip(one["history"], other["history"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
    assert one["weights"] == pytest.approx(other["weights"], abs=1e-2)


def test_two_workers_train_as_one_though_labels_and_rows_are_uneven(
    train: Train, make_example: Callable[..., Example]
) -> None:
    # 25 rows in batches of 8: the last batch is one row, so the second rank's share is empty.
    # Every third record lacks one label, every fifth the other: shares differ in known labels.
    examples = [
        make_example(
            f"r{row}",
            queue=None if row % 3 == 0 else row % 3,
            topics=None if row % 5 == 1 else (row % 2, 1),
            split="train" if row < 25 else "valid",
            filler=row % 7 + 1,
            seed=row,
        )
        for row in range(34)
    ]
    (alone,) = train(examples, world=1)
    first, second = train(examples, world=2)
    assert first == second  # every rank stops, and picks its best, on the same numbers
    assert_same_training(first, alone)


def test_a_worker_without_any_label_of_a_head_or_any_valid_row(
    train: Train, make_example: Callable[..., Example]
) -> None:
    # A batch of two, one row a rank: most of the time one rank has no label of a head at all.
    examples = [
        make_example(f"r{row}", queue=row % 3 if row % 2 else None, seed=row,
                     topics=None if row % 2 else (1, 0))
        for row in range(7)
    ]  # fmt: skip
    examples.append(make_example("v", split="valid", queue=1))
    (alone,) = train(examples, world=1, batch_size=2)
    first, second = train(examples, world=2, batch_size=2)
    assert first == second
    assert_same_training(first, alone)


def test_a_loss_that_is_nan_on_one_rank_stops_all(
    train: Train, make_example: Callable[..., Example]
) -> None:
    examples = [make_example(f"r{row}", queue=row % 3, seed=row) for row in range(16)]
    examples.append(make_example("v", split="valid"))
    first, second = train(examples, world=2, poison=True)
    assert first == second
    assert first["error"].startswith("the training loss became nan at learning rate 0.001")
