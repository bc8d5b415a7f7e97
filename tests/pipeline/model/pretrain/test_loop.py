from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.model.pretrain.lesson import Lesson, make_lesson
from pipeline.model.pretrain.loop import Progress, pretrain
from pipeline.model.pretrain.packing import pack
from pipeline.model.pretrain.starting import load_start
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.pretrain.corpus import Corpus
    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.task import TaskConfig

State = dict[str, Any]


class Trainer:
    """Pretrains a fresh tiny model on the corpus and keeps every state."""

    def __init__(self, corpus: Corpus, tokenizer: PieceTokenizer) -> None:
        self.tokenizer = tokenizer
        self.train, self.valid = (
            pack(tokenizer.documents(some), template=tokenizer.single, max_tokens=32, packed=False)
            for some in (corpus.train, corpus.valid)
        )
        self.states: list[State] = []
        self.told: list[tuple[int, float, int]] = []

    def lesson(self, task: TaskConfig) -> Lesson:
        start = load_start(task.train.backbone, task.pretrain)
        return make_lesson(start.model, task, self.tokenizer, train=self.train, valid=self.valid)

    def run(self, task: TaskConfig, *, resume: State | None = None) -> tuple[Lesson, Progress]:
        self.states, self.told = [], []
        lesson = self.lesson(task)
        progress = pretrain(
            lesson.objective, lesson.feed, task.pretrain, pad_id=self.tokenizer.pad_id,
            measure=lesson.measure, resume=resume, on_checkpoint=self._keep,
            on_step=lambda progress, loss, total: self.told.append((progress.step, loss, total)),
        )  # fmt: skip
        return lesson, progress

    def _keep(self, progress: Progress, state: State) -> None:
        assert state["progress"]["step"] == progress.step
        self.states.append(copy.deepcopy(state))


@pytest.fixture
def trainer(corpus: Corpus, piece_tokenizer: PieceTokenizer) -> Trainer:
    return Trainer(corpus, piece_tokenizer)


def weights(lesson: Lesson) -> dict[str, torch.Tensor]:
    return lesson.objective.state_dict()


def assert_same_weights(one: Lesson, other: Lesson) -> None:
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(other)[name]), name


def test_the_losses_fall_and_the_best_epoch_is_left(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    task = pretrain_task(epochs=8)
    before = trainer.lesson(task).measure()
    lesson, progress = trainer.run(task)
    losses = [row["train_loss"] for row in progress.history]
    assert losses[-1] < 0.8 * losses[0]
    best = min(row["valid_loss"] for row in progress.history)
    assert lesson.measure()["loss"] == pytest.approx(best, abs=1e-6)
    assert best == progress.best_loss < before["loss"]
    assert progress.history[progress.best_epoch - 1]["valid_loss"] == best
    assert progress.step == 8 * math.ceil(len(trainer.train) / 8)


def test_the_contrastive_loss_falls(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    task = pretrain_task(objective="simcse", epochs=2, learning_rate=2e-3)
    before = trainer.lesson(task).measure()
    lesson, progress = trainer.run(task)
    assert progress.best_loss < before["loss"]
    assert lesson.measure() == {"loss": pytest.approx(progress.best_loss, abs=1e-6)}


@pytest.mark.parametrize("state", [0, 1, 2, 3])
def test_a_resumed_run_equals_the_undisturbed_one_bit_for_bit(
    state: int, trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    # Ten steps an epoch: checkpoints in its middle and at its end.
    task = pretrain_task(epochs=2, checkpoint_steps=6, dropout=0.2)
    whole, progress = trainer.run(task)
    kept = trainer.states
    assert [each["progress"]["batch"] for each in kept] == [6, 0, 2, 8, 0]
    torch.manual_seed(99)  # what another process left in the generator makes no difference
    resumed, again = trainer.run(task, resume=kept[state])
    assert again == progress
    assert_same_weights(resumed, whole)


def test_a_run_that_was_over_does_not_go_on(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    whole, progress = trainer.run(pretrain_task(epochs=1))
    resumed, again = trainer.run(pretrain_task(epochs=1), resume=trainer.states[-1])
    assert again == progress
    assert trainer.states == []
    assert_same_weights(resumed, whole)


def test_each_step_is_told_with_its_loss(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    task = pretrain_task(epochs=2)
    _, progress = trainer.run(task)
    steps, losses, totals = zip(*trainer.told, strict=True)
    assert steps == tuple(range(1, progress.step + 1))
    assert set(totals) == {progress.step}
    first = losses[: progress.step // 2]
    assert sum(first) / len(first) == pytest.approx(progress.history[0]["train_loss"])


def test_small_parts_make_the_same_step(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    whole, one = trainer.run(pretrain_task(epochs=1, dropout=0.0))
    parts, other = trainer.run(pretrain_task(epochs=1, dropout=0.0, micro_batch_size=3))
    assert one.history[0] == pytest.approx(other.history[0], abs=1e-3)
    for name, tensor in weights(whole).items():
        assert torch.allclose(tensor, weights(parts)[name], atol=1e-2), name


def test_bf16_learns_too(trainer: Trainer, pretrain_task: Callable[..., TaskConfig]) -> None:
    task = pretrain_task(epochs=1, precision="bf16")
    before = trainer.lesson(task).measure()
    lesson, progress = trainer.run(task)
    assert progress.best_loss < before["loss"]
    assert {tensor.dtype for tensor in weights(lesson).values()} >= {torch.float32}
    assert torch.bfloat16 not in {tensor.dtype for tensor in weights(lesson).values()}


def test_a_loss_that_is_no_number_names_the_rate(
    trainer: Trainer, pretrain_task: Callable[..., TaskConfig]
) -> None:
    task = pretrain_task()
    lesson = trainer.lesson(task)
    with torch.no_grad():
        lesson.objective.model.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(DataContractError, match=r"became nan at learning rate 0\.005; try a lower"):
        pretrain(lesson.objective, lesson.feed, task.pretrain, pad_id=0, measure=lesson.measure)
