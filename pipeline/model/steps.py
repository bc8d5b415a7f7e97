"""One optimizer step over a global batch: passes, accumulated gradients, clipping, rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.model.adversarial import EmbeddingAdversary
from pipeline.model.batches import micro_batches, padded_length, pool_items, tensor_inputs
from pipeline.model.extra_loss import WholeBatch
from pipeline.model.losses import known_counts
from pipeline.model.r_drop import r_drop_loss
from pipeline.model.ranks import average_gradients, sum_over_ranks, whole_number
from pipeline.model.recipe import parameter_groups, rate_factor
from schemas.errors import ConfigError, DivergenceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.batches import Item
    from pipeline.model.extra_loss import ExtraLoss
    from pipeline.model.losses import HeadLosses
    from pipeline.model.ranks import Ranks
    from pipeline.model.recipe import Recipe
    from schemas.task import TrainConfig
    from schemas.train import Precision

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepFacts:
    """A step in numbers: of the whole batch its loss and the gradient's norm before clipping.

    `tokens`, and `cells` with padding, are of this rank's share.
    """

    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    cells: int


@dataclass
class Stepper:
    """Takes optimizer steps on a model; holds all that changes with a step but the weights.

    Raises:
        ConfigError: the device does not know `train.precision`.
    """

    ranks: Ranks
    losses: HeadLosses
    targets: Mapping[str, Tensor]  # by head, (N,) or (N, L)
    heads: tuple[HeadSlice, ...]
    config: TrainConfig
    recipe: Recipe
    total_steps: int
    pad_id: int
    extra_losses: tuple[ExtraLoss, ...] = ()

    def __post_init__(self) -> None:
        trained, config = self.ranks.trained, self.config
        self.device = next(trained.parameters()).device.type
        check_precision(config, self.device)
        for loss in self.extra_losses:
            loss.attach(trained)
        self.beside = [weight for loss in self.extra_losses for weight in loss.parameters()]
        self.optimizer = torch.optim.AdamW(
            parameter_groups(trained, config, self.recipe, beside=self.beside),
            fused=True,  # one pass over memory: a quarter faster steps with a small encoder
        )
        factor = rate_factor(config.schedule, self.total_steps, config.warmup_fraction)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        # Gradients under fp16's smallest number would be zero; the other types need no scaling.
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.recipe.precision == "fp16")
        self.adversary = (
            None if config.adversarial_epsilon is None
            else EmbeddingAdversary(trained.encoder, epsilon=config.adversarial_epsilon)
        )  # fmt: skip

    def step(self, batch: Sequence[Item]) -> StepFacts:
        """One step on this rank's share of a global batch.

        Raises:
            DivergenceError: the batch's loss is not finite.
        """
        parts = micro_batches(
            batch, rank=self.ranks.rank, world=self.ranks.world, parts=self.config.accumulate_steps
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss = sum_over_ranks(self._backward(parts, batch))
        if not math.isfinite(loss):  # the sum is the same everywhere, so all ranks raise together
            raise DivergenceError(
                f"the training loss became {loss} at learning rate {self.recipe.learning_rate}; "
                f"try a lower train.learning_rate"
            )
        if self.adversary is not None:
            with self.adversary.moved():
                self._backward(parts, batch)
        rate = self.recipe.learning_rate * self.scheduler.lr_lambdas[0](self.scheduler.last_epoch)
        norm = self._update()
        read = [[window for item in part for window in item.windows] for part in parts if part]
        return StepFacts(
            loss, norm, rate,
            tokens=sum(window.n_tokens for windows in read for window in windows),
            cells=sum(len(windows) * padded_length(windows) for windows in read),
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """What `load` takes up again; all ranks call it together."""
        return {
            "optimizer": self.ranks.optimizer_state(self.optimizer),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "extra_losses": [loss.state_dict() for loss in self.extra_losses],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        self.ranks.load_optimizer(self.optimizer, state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        for loss, its_state in zip(self.extra_losses, state["extra_losses"], strict=True):
            loss.load_state_dict(its_state)

    def _backward(self, parts: list[Sequence[Item]], batch: Sequence[Item]) -> Tensor:
        """Adds the batch's gradients up; answers this rank's part of its loss."""
        whole = WholeBatch(
            len(batch), known_counts(self._targets(batch)),
            step=self.scheduler.last_epoch, total_steps=self.total_steps,
        )  # fmt: skip
        total = torch.zeros((), device=self.device)
        for number, part in enumerate(parts, start=1):
            # A rank whose part is empty still takes part in the pass, with weight 0: else the
            # others would wait.
            weight, items = float(bool(part)), part or batch[:1]
            with self.ranks.passing(is_last=number == len(parts)):
                total += self._pass(items, whole, weight=weight)
        return total

    def _pass(self, items: Sequence[Item], whole: WholeBatch, *, weight: float) -> Tensor:
        """Forward and backward over a part of a batch; answers its part of the loss.

        Losses of parts add up to the batch's: each is over the whole batch's counts.
        """
        windows = [window for item in items for window in item.windows]
        passes = 2 if self.config.r_drop_alpha else 1
        inputs = tensor_inputs(self.ranks.trained, windows * passes, pad_id=self.pad_id)
        with passes_in(self.recipe.precision, self.device):
            logits = self.ranks.module(**inputs)
        answers = [
            pool_items(part, items, how=self.config.window_pooling)
            for part in logits.float().chunk(passes)
        ]
        targets = self._targets(items)
        losses = [self.losses(each, targets, counts=whole.known) for each in answers]
        loss = torch.stack(losses).mean()
        if passes == 2:
            one, other = answers
            apart = r_drop_loss(one, other, self.heads, n_items=whole.n_items)
            loss = loss + self.config.r_drop_alpha * apart
        for extra in self.extra_losses if weight else ():
            loss = loss + sum(extra(items, each, batch=whole) for each in answers) / passes
        loss = loss * weight
        # Gradients are averaged over ranks; the losses of shares are parts of one to be summed.
        torch.autograd.backward(self.scaler.scale(loss * self.ranks.world))
        return loss.detach()

    def _update(self) -> float:
        """Moves the weights; answers the gradient's norm."""
        parameters = list(self.ranks.trained.parameters())
        average_gradients(self.beside)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm)
        nn.utils.clip_grad_norm_(self.beside, self.config.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return whole_number(norm)

    def _targets(self, items: Sequence[Item]) -> dict[str, Tensor]:
        rows = [item.row for item in items]
        return {name: targets[rows] for name, targets in self.targets.items()}


def passes_in(precision: Precision, device: str) -> torch.autocast:
    """Inside of it forward passes compute in this precision."""
    kind = _TYPES[precision]
    return torch.autocast(device, dtype=kind, enabled=kind != torch.float32)


def check_precision(config: TrainConfig, device: str) -> None:
    """Makes sure that a device of this type trains in `train.precision`.

    Raises:
        ConfigError: it does not.
    """
    if config.precision == "fp16" and device == "cpu":
        raise ConfigError(
            "train.precision fp16: got a CPU to train on, which needs a GPU; take bf16 or fp32"
        )
