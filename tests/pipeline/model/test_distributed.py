"""Several workers must train as one does, and none may wait for another for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.labelled import save_examples
from schemas.task import LoraConfig
from schemas.train import AdapterConfig, DomainAdversarialConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Train = Callable[..., list[dict[str, Any]]]

    from pipeline.model.labelled import Example
    from schemas.task import TaskConfig

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.fixture
def train(tiny_task: TaskConfig, tmp_path: Path, run_ranks: Train) -> Train:
    """Runs `world` ranks and answers what each of them saw."""

    def run(
        examples: Sequence[Example], *, world: int, poison: bool = False, resume: bool = False,
        **changes: Any,
    ) -> list[dict[str, Any]]:  # fmt: skip
        folder = tmp_path / f"world{world}"
        folder.mkdir()
        recipe = tiny_task.train.model_copy(update={"dropout": 0.0, "epochs": 2, **changes})
        task = tiny_task.model_copy(update={"train": recipe})
        work = {"task": task.model_dump(mode="json"), "poison": poison, "resume": resume}
        (folder / "work.json").write_text(json.dumps(work))
        save_examples(examples, folder / "examples.parquet")
        return run_ranks(WORKER, folder, world=world)

    return run


def assert_same_training(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(one["history"]) == len(other["history"]) == 2
    for mine, theirs in zip(one["history"], other["history"], strict=True):
        # How fast, and how much is padded where each worker pads its share, may differ.
        for name in mine.keys() - {"tokens_per_s", "padding_share"}:
            assert mine[name] == pytest.approx(theirs[name], abs=1e-4), name
    assert one["weights"] == pytest.approx(other["weights"], abs=1e-2)


@pytest.fixture
def uneven(make_example: Callable[..., Example]) -> list[Example]:
    """25 rows in batches of 8: the last batch is one row, so the second rank's share is empty.

    Every third record lacks one label, every fifth the other: shares differ in known labels.
    """
    return [
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"accumulate_steps": 3, "adversarial_epsilon": 0.5, "window_pooling": "attention"},
        {"strategy": "fsdp", "accumulate_steps": 3, "adversarial_epsilon": 0.5},
        {"strategy": "fsdp", "lora": LoraConfig(rank=2)},
        {
            "domain_adversarial": DomainAdversarialConfig(width=8),
            "accumulate_steps": 3,
            "adapter": AdapterConfig(width=4),
        },
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
def test_failure_21_two_workers_train_as_one_though_labels_and_rows_are_uneven(
    changes: dict[str, Any], train: Train, uneven: list[Example]
) -> None:
    (alone,) = train(uneven, world=1, **changes)
    first, second = train(uneven, world=2, **changes)
    held = [rank.pop("share_held") for rank in (first, second)]
    if changes.get("strategy") == "fsdp":
        assert held == pytest.approx([0.5, 0.5], abs=0.02)  # of some weights a row more or less
    else:
        assert held == [1.0, 1.0]
    assert first == second  # every rank stops, and picks its best, on the same numbers
    assert_same_training(first, alone)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_workers_resume_to_the_bit_with_dropout_of_their_own(
    strategy: str, train: Train, uneven: list[Example]
) -> None:
    ranks = train(uneven, world=2, resume=True, strategy=strategy, dropout=0.2)
    assert [rank["resumed_to_the_bit"] for rank in ranks] == [True, True]


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


def test_failure_21_a_loss_that_is_nan_on_one_rank_stops_all(
    train: Train, make_example: Callable[..., Example]
) -> None:
    examples = [make_example(f"r{row}", queue=row % 3, seed=row) for row in range(16)]
    examples.append(make_example("v", split="valid"))
    first, second = train(examples, world=2, poison=True)
    assert first == second
    assert first["error"].startswith("the training loss became nan at learning rate 0.001")
