"""Fine-tuning: a plain loop that knows ranks but not who started them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pipeline.model.adapters import low_rank_updates
from pipeline.model.batches import batches, training_items
from pipeline.model.labelled import Example, label_matrices
from pipeline.model.losses import HeadLosses, plain_loss
from pipeline.model.metrics import gate_metric
from pipeline.model.ranks import gather, rank_and_world, ranks_for
from pipeline.model.record_logits import record_logits
from pipeline.model.steps import StepFacts, Stepper, check_precision
from schemas.errors import ConfigError, DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from pipeline.heads import HeadSlice
    from pipeline.model.extra_loss import ExtraLoss
    from pipeline.model.network import Classifier
    from pipeline.model.recipe import Recipe
    from schemas.task import TrainConfig

log = logging.getLogger(__name__)


@dataclass
class Progress:
    """Where training stands; saved with every checkpoint, so that a killed worker resumes.

    `history` has a row of numbers by epoch: beside losses and metric the gradient's norm before
    clipping (`grad_norm_mean`, `grad_norm_max`), the worst step's loss (`train_loss_max`), the
    last step's `learning_rate`, and of all workers `tokens_per_s` and `padding_share`, then what
    extra losses have to tell.
    """

    epoch: int = 0
    step: int = 0
    best_metric: float = -1.0
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


OnEpoch = Callable[[Progress, dict[str, Any], bool], None]
OnStep = Callable[[Progress, float, int], None]


def fit(  # noqa: PLR0913 - a training run has that many parts
    model: Classifier,
    *,
    train: Sequence[Example],
    valid: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    config: TrainConfig,
    recipe: Recipe,
    pad_id: int = 0,
    resume: dict[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
    extra_losses: tuple[ExtraLoss, ...] = (),
    label_weight: float = 1.0,
    on_step: OnStep | None = None,
) -> Progress:
    """Trains `model` in place, on its device, and leaves the best epoch's weights in it.

    Every rank must call it with the same arguments; each takes its share of each global batch, so
    that one worker and several see the same batches. `on_epoch` gets a state to save and whether
    it is the best so far; `resume` is such a state. What is random follows from `config.seed`,
    epoch and rank alone: on one machine the same arguments give the same bits, resumed or not.
    `extra_losses` are added to `label_weight` times that of the labels. `on_step` gets each step's
    loss and how many steps all epochs have.

    Raises:
        DataContractError: there is nothing to train on, or the loss became NaN.
        ConfigError: the model or its device cannot do what `config` asks.
    """
    if not train or not valid:
        raise DataContractError(
            f"{len(train)} training and {len(valid)} validation records: need both; "
            f"add labelled rows or change train.valid_fraction"
        )
    check_precision(config, next(model.parameters()).device.type)
    torch.manual_seed(config.seed)  # what LoRA starts from
    with (
        low_rank_updates(model.encoder, config.lora),
        recomputed_activations(model.encoder, config.gradient_checkpointing),
    ):
        fitting = _Fit(
            model, train, valid, heads, config, recipe, pad_id, on_epoch, extra_losses,
            label_weight, on_step,
        )  # fmt: skip
        return fitting.run(resume)


@contextmanager
def recomputed_activations(encoder: PreTrainedModel, is_asked: bool) -> Iterator[None]:
    """Inside the block, where asked, layers forget what happens in them and do it again.

    Raises:
        ConfigError: the encoder cannot.
    """
    if not is_asked:
        yield
        return
    try:
        encoder.activation_checkpointing_enable()
    except ValueError as error:
        raise ConfigError(
            f"train.gradient_checkpointing: the backbone does not support it ({error}); "
            f"use train.accumulate_steps to save memory"
        ) from error
    yield
    encoder.activation_checkpointing_disable()
    encoder.disable_input_require_grads()


@dataclass
class _Fit:
    model: Classifier
    train: Sequence[Example]
    valid: Sequence[Example]
    heads: tuple[HeadSlice, ...]
    config: TrainConfig
    recipe: Recipe
    pad_id: int
    on_epoch: OnEpoch | None
    extra_losses: tuple[ExtraLoss, ...]
    label_weight: float
    on_step: OnStep | None = None

    def __post_init__(self) -> None:
        self.rank, self.world = rank_and_world()
        self.best_weights: dict[str, Tensor] = {}

    def run(self, resume: dict[str, Any] | None) -> Progress:
        if resume:
            self.model.load_state_dict(resume["model"])
            self.best_weights = resume["best"]
        self.stepper = self._stepper()  # after the weights are there: ranks may copy them
        progress = self._restore(resume) if resume else Progress()
        # Asked before an epoch, so that a run killed after its last one does not train on.
        while not self._is_over(progress):
            trained = self._train_epoch(progress)
            is_best = self._note(progress, trained, *self._validate())
            if self.on_epoch is not None:
                self.on_epoch(progress, self._state(progress, is_best=is_best), is_best)
        self.model.load_state_dict(self.best_weights)
        for loss in self.extra_losses:
            loss.detach()
        return progress

    def _stepper(self) -> Stepper:
        targets = label_matrices(self.train, self.heads)
        device = next(self.model.parameters()).device
        n_items = len(training_items(self.train, self.config, epoch=0))
        return Stepper(
            ranks=ranks_for(self.model, self.config),
            losses=HeadLosses(self.heads, self.config, targets, weight=self.label_weight),
            targets={name: torch.from_numpy(rows).to(device) for name, rows in targets.items()},
            heads=self.heads,
            config=self.config,
            recipe=self.recipe,
            total_steps=self.recipe.epochs * -(-n_items // self.recipe.batch_size),
            pad_id=self.pad_id,
            extra_losses=self.extra_losses,
        )

    def _is_over(self, progress: Progress) -> bool:
        if progress.epoch - progress.best_epoch >= self.config.patience_epochs:
            log.info("stopping early: no better than epoch %d", progress.best_epoch)
            return True
        return progress.epoch >= self.recipe.epochs

    def _note(
        self, progress: Progress, trained: dict[str, float], metric: float, valid_loss: float
    ) -> bool:
        """Writes an epoch's numbers down; answers whether it is the best so far."""
        progress.epoch += 1
        found = {"epoch": progress.epoch, "valid_loss": valid_loss, "valid_macro_f1": metric}
        progress.history.append(found | trained)
        log.info(
            "epoch %d/%d: train loss %.4f, valid loss %.4f, valid macro-F1 %.4f",
            progress.epoch, self.recipe.epochs, trained["train_loss"], valid_loss, metric,
        )  # fmt: skip
        if metric <= progress.best_metric:
            return False
        progress.best_metric, progress.best_epoch = metric, progress.epoch
        self.best_weights = _copy(self.model.state_dict())
        return True

    def _train_epoch(self, progress: Progress) -> dict[str, float]:
        """Trains for an epoch; answers its numbers, which are the same on all ranks."""
        # Dropout from here on is that of this epoch and rank, whatever went before.
        torch.manual_seed(int(digest_of([self.config.seed, progress.epoch, self.rank])[:15], 16))
        self.stepper.ranks.module.train()
        items = training_items(self.train, self.config, epoch=progress.epoch)
        facts, started = [], time.perf_counter()
        for rows in batches(
            [item.n_tokens for item in items],
            batch_size=self.recipe.batch_size,
            seed=self.config.seed + progress.epoch,
        ):
            facts.append(self.stepper.step([items[row] for row in rows]))
            progress.step += 1
            if self.on_step is not None:
                self.on_step(progress, facts[-1].loss, self.stepper.total_steps)
        seconds = time.perf_counter() - started
        self.stepper.ranks.update_model()
        numbers = _epoch_numbers(facts, seconds)
        for loss in self.extra_losses:
            numbers |= loss.epoch_numbers()
        return numbers

    def _validate(self) -> tuple[float, float]:
        """Macro-F1 and loss on validation; ranks share the work, all get the same numbers."""
        mine = list(range(self.rank, len(self.valid), self.world))
        logits = record_logits(
            self.model, [self.valid[row] for row in mine],
            pad_id=self.pad_id, how=self.config.window_pooling,
        )  # fmt: skip
        merged = np.zeros((len(self.valid), logits.shape[1]), dtype=np.float32)
        for rows, values in gather((mine, logits)):
            merged[rows] = values
        targets = label_matrices(self.valid, self.heads)
        known = {name: torch.from_numpy(rows) for name, rows in targets.items()}
        loss = plain_loss(torch.from_numpy(merged), known, self.heads)
        return gate_metric(merged, targets, self.heads), float(loss)

    def _state(self, progress: Progress, *, is_best: bool) -> dict[str, Any]:
        weights = self.model.state_dict()
        return {
            "model": weights,
            # The same tensors are written once.
            "best": weights if is_best else self.best_weights,
            "progress": progress.__dict__,
            **self.stepper.state(),
        }

    def _restore(self, state: dict[str, Any]) -> Progress:
        self.stepper.load(state)
        progress = Progress(**state["progress"])
        log.info("resuming after epoch %d", progress.epoch)
        return progress


def _epoch_numbers(facts: Sequence[StepFacts], seconds: float) -> dict[str, float]:
    """An epoch's row of `Progress.history`; all ranks call it together."""
    read = gather((sum(fact.tokens for fact in facts), sum(fact.cells for fact in facts), seconds))
    tokens, cells = sum(each[0] for each in read), sum(each[1] for each in read)
    losses, norms = ([getattr(fact, name) for fact in facts] for name in ("loss", "gradient_norm"))
    return {
        "train_loss": float(np.mean(losses)),
        "train_loss_max": max(losses),
        "grad_norm_mean": float(np.mean(norms)),
        "grad_norm_max": max(norms),
        "learning_rate": facts[-1].learning_rate,
        "tokens_per_s": tokens / max(each[2] for each in read),
        "padding_share": 1.0 - tokens / cells,
    }


def _copy(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
