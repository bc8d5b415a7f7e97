from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pipeline.model.checkpoint import new_classifier
from pipeline.model.fit import Progress, fit, record_logits, takes_segments
from pipeline.model.labelled import label_matrix
from pipeline.model.metrics import gate_metric
from pipeline.model.recipe import Recipe
from pipeline.window import Window
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

State = dict[str, Any]


class Trainer:
    """Trains a fresh tiny model on the toy set and keeps every epoch's state."""

    def __init__(self, examples: list[Example], heads: tuple[HeadSlice, ...]) -> None:
        self.train = [example for example in examples if example.split == "train"]
        self.valid = [example for example in examples if example.split == "valid"]
        self.heads = heads
        self.states: list[State] = []
        self.best: list[bool] = []

    def run(
        self, config: TrainConfig, *, epochs: int, rate: float = 5e-3, resume: State | None = None
    ) -> tuple[Classifier, Progress]:
        self.states, self.best = [], []
        model = new_classifier(config, self.heads)
        progress = fit(
            model, train=self.train, valid=self.valid, heads=self.heads, config=config,
            recipe=Recipe(epochs, rate, "a test"), resume=resume, on_epoch=self._keep,
        )  # fmt: skip
        return model, progress

    def _keep(self, progress: Progress, state: State, is_best: bool) -> None:
        assert state["progress"]["epoch"] == progress.epoch
        self.states.append(copy.deepcopy(state))
        self.best.append(is_best)


@pytest.fixture
def trainer(toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...]) -> Trainer:
    return Trainer(toy_examples, toy_heads)


def weights(model: Classifier) -> dict[str, torch.Tensor]:
    return model.state_dict()


def assert_same_weights(one: Classifier, other: Classifier) -> None:
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(other)[name]), name


def test_a_keyword_is_learned(trainer: Trainer, toy_config: Callable[..., TrainConfig]) -> None:
    model, progress = trainer.run(toy_config(patience_epochs=10), epochs=10)
    losses = [row["train_loss"] for row in progress.history]
    assert losses[-1] < 0.3 * losses[0]
    assert progress.best_metric > 0.9
    assert progress.step == 10 * -(-len(trainer.train) // 8)
    logits = record_logits(model, trainer.valid, pad_id=0)
    targets = {
        head.name: label_matrix(trainer.valid, head.name, head.config) for head in trainer.heads
    }
    # What is left in the model is the best epoch, not the last.
    assert gate_metric(logits, targets, trainer.heads) == progress.best_metric
    assert progress.best_metric == max(row["valid_macro_f1"] for row in progress.history)


def test_the_same_seed_gives_the_same_bits(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(dropout=0.2)
    one, _ = trainer.run(config, epochs=1)
    two, _ = trainer.run(config, epochs=1)
    assert_same_weights(one, two)
    other, _ = trainer.run(toy_config(dropout=0.2, seed=14), epochs=1)
    assert not torch.equal(one.heads.weight, other.heads.weight)


def test_early_stopping_restores_the_best_weights(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    # Far too high a rate: after some epoch it only gets worse.
    model, progress = trainer.run(toy_config(patience_epochs=2), epochs=30, rate=8e-2)
    assert progress.epoch == progress.best_epoch + 2 < 30
    best = trainer.states[progress.best_epoch - 1]["model"]
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, best[name]), name
    assert trainer.best[progress.best_epoch - 1 :] == [True, False, False]


def test_a_resumed_run_equals_the_undisturbed_one(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(dropout=0.2, patience_epochs=9)
    whole, progress = trainer.run(config, epochs=3)
    resumed, again = trainer.run(config, epochs=3, resume=trainer.states[0])
    assert again == progress
    assert_same_weights(resumed, whole)


def test_a_run_that_had_stopped_early_does_not_go_on(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(patience_epochs=2)
    whole, progress = trainer.run(config, epochs=30, rate=8e-2)
    resumed, again = trainer.run(config, epochs=30, rate=8e-2, resume=trainer.states[-1])
    assert again == progress
    assert trainer.states == []
    assert_same_weights(resumed, whole)


def test_nan_loss_names_the_learning_rate(
    trainer: Trainer, toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> None:
    model = new_classifier(toy_config(), toy_heads)
    with torch.no_grad():
        model.heads.weight.fill_(float("nan"))
    with pytest.raises(
        DataContractError, match=r"loss became nan at learning rate 0\.5; try a lower"
    ):
        fit(
            model, train=trainer.train, valid=trainer.valid, heads=toy_heads, config=toy_config(),
            recipe=Recipe(1, 0.5, "a test"),
        )  # fmt: skip


@pytest.mark.parametrize("missing", ["train", "valid"])
def test_an_empty_split_says_so(
    missing: str,
    trainer: Trainer,
    toy_config: Callable[..., TrainConfig],
) -> None:
    setattr(trainer, missing, [])
    counts = f"{len(trainer.train)} training and {len(trainer.valid)} validation records"
    with pytest.raises(DataContractError, match=counts):
        trainer.run(toy_config(), epochs=1)


def test_record_logits_weigh_windows_by_tokens(
    tiny_model: Classifier, make_example: Callable[..., Example]
) -> None:
    one, two = Window((2, 45, 3), (0, 0, 0), 0, 1), Window((2, 21, 50, 51, 52, 3), (0,) * 6, 0, 1)
    base = make_example("r")
    long, short = (
        type(base)(**{**vars(base), "windows": windows}) for windows in ((one, two), (two,))
    )
    both, alone = record_logits(tiny_model, [long, short], pad_id=0)
    first = record_logits(tiny_model, [type(base)(**{**vars(base), "windows": (one,)})], pad_id=0)
    np.testing.assert_allclose(both, (3 * first[0] + 6 * alone) / 9, atol=1e-5)
    assert record_logits(tiny_model, [], pad_id=0).shape == (0, 5)


def test_windows_over_the_limit_are_not_trained_on(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    long = type(trainer.train[0])(
        **{**vars(trainer.train[0]), "windows": trainer.train[0].windows * 5}
    )
    trainer.train = [long] * 4
    _, progress = trainer.run(toy_config(batch_size=2, max_windows_per_record=3), epochs=1)
    assert progress.step == 6  # 4 records, 3 windows each, 2 a batch


def test_bert_takes_segments(tiny_model: Classifier) -> None:
    assert takes_segments(tiny_model)
