"""The pretraining loop: it knows ranks but not who started them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from pipeline.model.batches import batches, has_segments
from pipeline.model.pretrain.objective import collate
from pipeline.model.ranks import Replicas, sum_over_ranks
from pipeline.model.recipe import rate_factor
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from pipeline.model.pretrain.masking import Example
    from pipeline.model.pretrain.objective import Objective
    from schemas.pretrain import PretrainConfig

log = logging.getLogger(__name__)


@dataclass
class Progress:
    """Where pretraining stands: `batch` batches, of losses `loss_sum`, into the epoch under way."""

    epoch: int = 0
    step: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    best_loss: float = math.inf
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Feed(Protocol):
    """What is learned from: examples by number, another choice of hidden pieces each epoch."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each sequence."""

    def example(self, number: int, *, epoch: int) -> Example:
        """One sequence as it is seen in an epoch."""


# Gets a state to save after `checkpoint_steps` steps, and at the end of each epoch.
OnCheckpoint = Callable[[Progress, dict[str, Any]], None]
# Gets each step's loss, and how many steps there are in all.
OnStep = Callable[[Progress, float, int], None]


def pretrain(
    objective: Objective,
    feed: Feed,
    config: PretrainConfig,
    *,
    pad_id: int,
    measure: Callable[[], dict[str, float]],
    resume: dict[str, Any] | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    on_step: OnStep | None = None,
) -> Progress:
    """Trains in place and leaves the weights of the epoch with the lowest held-out loss.

    Every rank must call it with the same arguments; each takes its share of each batch, so that one
    worker and several see the same batches. `measure` answers held-out numbers, `loss` among them;
    `resume` is a state that `on_checkpoint` got.

    Raises:
        DataContractError: a loss is no longer a number.
    """
    return _Run(objective, feed, config, pad_id, measure, on_checkpoint, on_step).run(resume)


@dataclass
class _Run:
    objective: Objective
    feed: Feed
    config: PretrainConfig
    pad_id: int
    measure: Callable[[], dict[str, float]]
    on_checkpoint: OnCheckpoint | None
    on_step: OnStep | None

    def __post_init__(self) -> None:
        self.ranks = Replicas(self.objective)
        self.segments = has_segments(self.objective.model)
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.objective, self.config.weight_decay),
            lr=self.config.learning_rate,
            fused=True,
        )
        per_epoch = math.ceil(len(self.feed.lengths) / self.config.batch_size)
        self.steps = self.config.epochs * per_epoch
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, rate_factor("linear", self.steps, self.config.warmup_fraction)
        )
        self.best_weights: dict[str, Tensor] = {}

    def run(self, resume: dict[str, Any] | None) -> Progress:
        progress = self._restore(resume) if resume else Progress()
        while progress.epoch < self.config.epochs:
            self._epoch(progress)
            is_best = self._note(progress, self.measure())
            self._save(progress, is_best=is_best)
        self.objective.load_state_dict(self.best_weights)
        return progress

    def _epoch(self, progress: Progress) -> None:
        size, epoch = self.config.batch_size, progress.epoch
        made = list(batches(self.feed.lengths, batch_size=size, seed=self.config.seed + epoch))
        for numbers in made[progress.batch :]:
            examples = [self.feed.example(number, epoch=epoch) for number in numbers]
            loss = self._step(examples, progress.step)
            progress.loss_sum += loss
            progress.step += 1
            progress.batch += 1
            if self.on_step is not None:
                self.on_step(progress, loss, self.steps)
            is_last = progress.batch == len(made)
            if progress.step % self.config.checkpoint_steps == 0 and not is_last:
                self._save(progress, is_best=False)

    def _step(self, examples: list[Example], step: int) -> float:
        """One step on this rank's share of a batch; answers the whole batch's loss."""
        ranks = self.ranks
        # Dropout hangs on seed, step and rank alone, so that a resumed run needs no generator
        # state; the hash of whole numbers is the same in every process.
        torch.manual_seed(hash((self.config.seed, step, ranks.rank)))
        ranks.module.train()
        self.optimizer.zero_grad(set_to_none=True)
        weights = self.objective.weights(examples)
        share = examples[ranks.rank :: ranks.world]
        # A rank whose share is empty still takes part, with weight 0: else the others would wait.
        chosen, factor = share or examples[:1], float(bool(share))
        size = self.config.micro_batch_size or len(chosen)
        value = torch.zeros(())
        for start in range(0, len(chosen), size):
            with ranks.passing(is_last=start + size >= len(chosen)):
                loss = (self._losses(chosen[start : start + size]) / weights).sum() * factor
                # DDP averages gradients over ranks; these are parts of one mean, to be summed.
                torch.autograd.backward(loss * ranks.world)
            value += loss.detach()
        return self._apply(sum_over_ranks(value))

    def _apply(self, loss: float) -> float:
        self._check(loss)  # the sum is the same everywhere, so all ranks raise together
        nn.utils.clip_grad_norm_(self.objective.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        return loss

    def _losses(self, examples: Sequence[Example]) -> Tensor:
        tensors = collate(examples, pad_id=self.pad_id, segments=self.segments)
        is_half = self.config.precision == "bf16"
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_half):
            losses: Tensor = self.ranks.module(**tensors)
        return losses

    def _note(self, progress: Progress, measured: dict[str, float]) -> bool:
        """Writes an epoch's numbers down; answers whether it is the best so far."""
        self._check(measured["loss"])
        train_loss = progress.loss_sum / max(1, progress.batch)
        progress.epoch += 1
        progress.batch, progress.loss_sum = 0, 0.0
        held_out = {f"valid_{name}": value for name, value in measured.items()}
        numbers = {"epoch": progress.epoch, "train_loss": train_loss, **held_out}
        progress.history.append(numbers)
        if measured["loss"] >= progress.best_loss:
            return False
        progress.best_loss, progress.best_epoch = measured["loss"], progress.epoch
        self.best_weights = {
            name: tensor.detach().clone() for name, tensor in self.objective.state_dict().items()
        }
        return True

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise DataContractError(
                f"the pretraining loss became {loss} at learning rate "
                f"{self.config.learning_rate}; try a lower pretrain.learning_rate"
            )

    def _save(self, progress: Progress, *, is_best: bool) -> None:
        if self.on_checkpoint is None:
            return
        weights = self.objective.state_dict()
        state = {
            "model": weights,
            # The same tensors are written once.
            "best": weights if is_best else self.best_weights,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "progress": asdict(progress),
        }
        self.on_checkpoint(progress, state)

    def _restore(self, state: dict[str, Any]) -> Progress:
        self.objective.load_state_dict(state["model"])
        self.best_weights = state["best"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        progress = Progress(**state["progress"])
        log.info("resuming after epoch %d, step %d", progress.epoch, progress.step)
        return progress


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW groups of all that learns: no decay on norms and biases."""
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in learning if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in learning if p.ndim < 2], "weight_decay": 0.0},
    ]
