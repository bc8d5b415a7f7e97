from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.model.checkpoint import new_classifier
from pipeline.model.fit import Progress, fit
from pipeline.model.labelled import label_matrix
from pipeline.model.metrics import gate_metric
from pipeline.model.recipe import Recipe, choose_recipe
from pipeline.model.record_logits import record_logits
from schemas.errors import ConfigError, DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.fit import OnStep
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
        self, config: TrainConfig, *, epochs: int, rate: float = 5e-3, resume: State | None = None,
        on_step: OnStep | None = None,
    ) -> tuple[Classifier, Progress]:  # fmt: skip
        self.states, self.best = [], []
        model = new_classifier(config, self.heads)
        chosen = choose_recipe(config, n_train=len(self.train), hidden_size=32)
        progress = fit(
            model, train=self.train, valid=self.valid, heads=self.heads, config=config,
            recipe=replace(chosen, epochs=epochs, learning_rate=rate), resume=resume,
            on_epoch=self._keep, on_step=on_step,
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


def numbers(progress: Progress) -> dict[str, Any]:
    """What must be the same again: all but the speed."""
    history = [
        {name: value for name, value in row.items() if name != "tokens_per_s"}
        for row in progress.history
    ]
    return vars(progress) | {"history": history}


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
    assert numbers(again) == numbers(progress)
    assert_same_weights(resumed, whole)


def test_a_run_killed_at_a_random_step_ends_with_the_metric_of_the_undisturbed_one(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    """Its last epoch is begun again, whatever the killed one had moved by then."""
    config = toy_config(dropout=0.2, patience_epochs=9)
    taken = list[int]()
    whole, progress = trainer.run(config, epochs=3, on_step=lambda p, *_: taken.append(p.step))
    assert taken == list(range(1, len(taken) + 1))
    fatal = random.Random(2).randrange(2, len(taken))

    def die(now: Progress, *_: Any) -> None:
        if now.step == fatal:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.run(config, epochs=3, on_step=die)
    last = trainer.states[-1] if trainer.states else None
    torch.manual_seed(99)
    resumed, again = trainer.run(config, epochs=3, resume=last)
    assert again.history[-1]["valid_macro_f1"] == progress.history[-1]["valid_macro_f1"]
    assert numbers(again) == numbers(progress)
    assert_same_weights(resumed, whole)


def test_a_run_that_had_stopped_early_does_not_go_on(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(patience_epochs=2)
    whole, progress = trainer.run(config, epochs=30, rate=8e-2)
    resumed, again = trainer.run(config, epochs=30, rate=8e-2, resume=trainer.states[-1])
    assert numbers(again) == numbers(progress)
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


def test_windows_over_the_limit_are_not_trained_on(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    long = type(trainer.train[0])(
        **{**vars(trainer.train[0]), "windows": trainer.train[0].windows * 5}
    )
    trainer.train = [long] * 4
    _, progress = trainer.run(toy_config(batch_size=2, max_windows_per_record=3), epochs=1)
    assert progress.step == 6  # 4 records, 3 windows each, 2 a batch


def test_an_epoch_s_numbers(trainer: Trainer, toy_config: Callable[..., TrainConfig]) -> None:
    _, progress = trainer.run(toy_config(batch_size=16), epochs=2, rate=1e-3)
    steps = -(-len(trainer.train) // 16)
    tokens = sum(example.windows[0].n_tokens for example in trainer.train)
    for number, row in enumerate(progress.history, start=1):
        assert 0.0 < row["grad_norm_mean"] <= row["grad_norm_max"]
        assert row["train_loss"] <= row["train_loss_max"]
        warmup = max(1, round(2 * steps * 0.1))
        left = (2 * steps - (number * steps - 1)) / (2 * steps - warmup)
        assert row["learning_rate"] == pytest.approx(1e-3 * left)
        assert row["tokens_per_s"] > 0
        # Windows of 3 to 11 tokens in rows of 8 or 16: the cells are a whole number of eights.
        cells = tokens / (1.0 - row["padding_share"])
        assert cells / 8 == pytest.approx(round(cells / 8))
        assert 0.0 < row["padding_share"] < 0.6


def test_the_callers_random_state_does_not_matter(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(dropout=0.2, patience_epochs=9)
    whole, progress = trainer.run(config, epochs=2)
    first = trainer.states[0]
    torch.manual_seed(99)
    torch.rand(7)
    resumed, again = trainer.run(config, epochs=2, resume=first)
    assert numbers(again) == numbers(progress)
    assert_same_weights(resumed, whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": "cosine", "accumulate_steps": 2},
        {"adversarial_epsilon": 0.5},
        {"r_drop_alpha": 1.0, "dropout": 0.1},
        {"gradient_checkpointing": True},
        {"precision": "bf16"},
        {"window_pooling": "attention"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_way_of_training_learns_and_resumes_to_the_bit(
    changes: dict[str, Any], trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    config = toy_config(patience_epochs=9, **changes)
    whole, progress = trainer.run(config, epochs=3)
    assert progress.history[-1]["train_loss"] < 0.9 * progress.history[0]["train_loss"]
    resumed, again = trainer.run(config, epochs=3, resume=trainer.states[1])
    assert numbers(again) == numbers(progress)
    assert_same_weights(resumed, whole)


def test_half_precision_keeps_whole_weights_and_wants_a_gpu(
    trainer: Trainer, toy_config: Callable[..., TrainConfig]
) -> None:
    model, progress = trainer.run(toy_config(precision="bf16"), epochs=1, rate=1e-3)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    _, exact = trainer.run(toy_config(), epochs=1, rate=1e-3)
    one, other = progress.history[0]["train_loss"], exact.history[0]["train_loss"]
    assert one != other
    assert one == pytest.approx(other, rel=2e-2)
    with pytest.raises(ConfigError, match=r"train\.precision fp16: got a CPU to train on"):
        trainer.run(toy_config(precision="fp16"), epochs=1)
