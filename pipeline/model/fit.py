"""Fine-tuning: a plain loop that knows ranks but not who started them."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pipeline.batch import window_inputs
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import gate_metric
from pipeline.model.network import head_loss, known_counts
from pipeline.model.recipe import Recipe, linear_warmup, parameter_groups
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from pipeline.heads import HeadSlice
    from pipeline.window import Window
    from schemas.task import TrainConfig

log = logging.getLogger(__name__)

PAD_MULTIPLE = 8
_BATCHES_PER_GROUP = 50  # how many batches are sorted by length together
_EVALUATION_BATCH = 64


@dataclass
class Progress:
    """Where training stands; saved with every checkpoint, so that a killed worker resumes."""

    epoch: int = 0
    step: int = 0
    best_metric: float = -1.0
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


OnEpoch = Callable[[Progress, dict[str, Any], bool], None]


def fit(  # noqa: PLR0913 - a training run has that many parts
    model: nn.Module,
    *,
    train: Sequence[Example],
    valid: Sequence[Example],
    heads: tuple[HeadSlice, ...],
    config: TrainConfig,
    recipe: Recipe,
    pad_id: int = 0,
    resume: dict[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Progress:
    """Trains `model` in place and leaves the best epoch's weights in it.

    Every rank must call it with the same arguments; each takes its share of each global batch, so
    that one worker and several see the same batches. `on_epoch` gets a state to save and whether
    it is the best so far; `resume` is such a state.

    Raises:
        DataContractError: there is nothing to train on, or the loss became NaN.
    """
    if not train or not valid:
        raise DataContractError(
            f"{len(train)} training and {len(valid)} validation records: need both; "
            f"add labelled rows or change train.valid_fraction"
        )
    return _Fit(model, train, valid, heads, config, recipe, pad_id, on_epoch).run(resume)


@dataclass
class _Fit:
    model: nn.Module
    train: Sequence[Example]
    valid: Sequence[Example]
    heads: tuple[HeadSlice, ...]
    config: TrainConfig
    recipe: Recipe
    pad_id: int
    on_epoch: OnEpoch | None

    def __post_init__(self) -> None:
        limit = self.config.max_windows_per_record
        self.pairs = [
            (window, row)
            for row, example in enumerate(self.train)
            for window in example.windows[:limit]
        ]
        self.targets = {
            head.name: label_matrix(list(self.train), head.name, head.config) for head in self.heads
        }
        self.rank, self.world = _rank_and_world()
        self.wrapped = DistributedDataParallel(self.model) if self.world > 1 else self.model
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, self.config, self.recipe.learning_rate),
            fused=True,  # one pass over memory: a quarter faster steps with a small encoder
        )
        total = self.recipe.epochs * math.ceil(len(self.pairs) / self.config.batch_size)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, linear_warmup(total, self.config.warmup_fraction)
        )
        self.best_weights: dict[str, Tensor] = {}

    def run(self, resume: dict[str, Any] | None) -> Progress:
        progress = self._restore(resume) if resume else Progress()
        # Asked before an epoch, so that a run killed after its last one does not train on.
        while not self._is_over(progress):
            train_loss = self._train_epoch(progress)
            is_best = self._note(progress, train_loss, *self._validate())
            if self.on_epoch is not None:
                self.on_epoch(progress, self._state(progress, is_best=is_best), is_best)
        self.model.load_state_dict(self.best_weights)
        return progress

    def _is_over(self, progress: Progress) -> bool:
        if progress.epoch - progress.best_epoch >= self.config.patience_epochs:
            log.info("stopping early: no better than epoch %d", progress.best_epoch)
            return True
        return progress.epoch >= self.recipe.epochs

    def _note(
        self, progress: Progress, train_loss: float, metric: float, valid_loss: float
    ) -> bool:
        """Writes an epoch's numbers down; answers whether it is the best so far."""
        progress.epoch += 1
        progress.history.append(
            {
                "epoch": progress.epoch,
                "train_loss": train_loss,
                "valid_loss": valid_loss,
                "valid_macro_f1": metric,
            }
        )
        log.info(
            "epoch %d/%d: train loss %.4f, valid loss %.4f, valid macro-F1 %.4f",
            progress.epoch, self.recipe.epochs, train_loss, valid_loss, metric,
        )  # fmt: skip
        if metric <= progress.best_metric:
            return False
        progress.best_metric, progress.best_epoch = metric, progress.epoch
        self.best_weights = _copy(self.model.state_dict())
        return True

    def _train_epoch(self, progress: Progress) -> float:
        self.wrapped.train()
        losses = []
        for rows in batches(
            [window.n_tokens for window, _ in self.pairs],
            batch_size=self.config.batch_size,
            seed=self.config.seed + progress.epoch,
        ):
            losses.append(self._step([self.pairs[row] for row in rows]))
            progress.step += 1
        return float(np.mean(losses))

    def _step(self, batch: list[tuple[Window, int]]) -> float:
        """One step on this rank's share of a global batch; answers the whole batch's loss."""
        share = batch[self.rank :: self.world]
        # A rank whose share is empty still takes part, with weight 0: else the others would wait.
        chosen = share or batch[:1]
        logits = self.wrapped(**self._inputs([window for window, _ in chosen]))
        loss = head_loss(
            logits, self._targets(chosen), self.heads, smoothing=self.config.label_smoothing,
            counts=known_counts(self._targets(batch)),
        ) * float(bool(share))  # fmt: skip
        value = self._sum_over_ranks(loss)
        if not math.isfinite(value):  # the sum is the same everywhere, so all ranks raise together
            raise DataContractError(
                f"the training loss became {value} at learning rate {self.recipe.learning_rate}; "
                f"try a lower train.learning_rate"
            )
        self.optimizer.zero_grad(set_to_none=True)
        # DDP averages gradients over ranks; the shares' losses are parts of one mean to be summed.
        (loss * self.world).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        return value

    def _targets(self, pairs: list[tuple[Window, int]]) -> dict[str, Tensor]:
        records = [record for _, record in pairs]
        return {name: torch.from_numpy(rows[records]) for name, rows in self.targets.items()}

    def _sum_over_ranks(self, loss: Tensor) -> float:
        total = loss.detach().clone()
        if self.world > 1:
            dist.all_reduce(total)
        return float(total)

    @torch.no_grad()
    def _validate(self) -> tuple[float, float]:
        """Macro-F1 and loss on validation; ranks share the work, all get the same numbers."""
        self.wrapped.eval()
        mine = list(range(self.rank, len(self.valid), self.world))
        logits = record_logits(self.model, [self.valid[row] for row in mine], pad_id=self.pad_id)
        gathered = _gather((mine, logits))
        merged = np.zeros((len(self.valid), logits.shape[1]), dtype=np.float32)
        for rows, values in gathered:
            merged[rows] = values
        targets = {
            head.name: label_matrix(list(self.valid), head.name, head.config) for head in self.heads
        }
        loss = head_loss(
            torch.from_numpy(merged),
            {name: torch.from_numpy(rows) for name, rows in targets.items()},
            self.heads,
            smoothing=0.0,
        )
        return gate_metric(merged, targets, self.heads), float(loss)

    def _inputs(self, windows: Sequence[Window]) -> dict[str, Tensor]:
        return tensor_inputs(self.model, windows, pad_id=self.pad_id)

    def _state(self, progress: Progress, *, is_best: bool) -> dict[str, Any]:
        weights = self.model.state_dict()
        return {
            "model": weights,
            # The same tensors are written once.
            "best": weights if is_best else self.best_weights,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "progress": progress.__dict__,
            "random": torch.get_rng_state(),
        }

    def _restore(self, state: dict[str, Any]) -> Progress:
        self.model.load_state_dict(state["model"])
        self.best_weights = state["best"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["random"])
        progress = Progress(**state["progress"])
        log.info("resuming after epoch %d", progress.epoch)
        return progress


def batches(lengths: Sequence[int], *, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Row numbers by batch: shuffled, then grouped by length so that little is padded."""
    chooser = random.Random(seed)  # noqa: S311 - an order of rows, not a secret
    rows = list(range(len(lengths)))
    chooser.shuffle(rows)
    group = batch_size * _BATCHES_PER_GROUP
    made = []
    for start in range(0, len(rows), group):
        chunk = sorted(rows[start : start + group], key=lambda row: lengths[row])
        made += [chunk[at : at + batch_size] for at in range(0, len(chunk), batch_size)]
    chooser.shuffle(made)
    yield from made


def tensor_inputs(model: nn.Module, windows: Sequence[Window], *, pad_id: int) -> dict[str, Tensor]:
    """The tensors `(B, T)` that `model` takes for `windows`."""
    arrays = window_inputs(windows, pad_id=pad_id, multiple=PAD_MULTIPLE)
    if not takes_segments(model):
        del arrays["token_type_ids"]
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def takes_segments(model: nn.Module) -> bool:
    """Whether the encoder has more than one segment embedding."""
    return int(getattr(model.encoder.config, "type_vocab_size", 0) or 0) > 1  # type: ignore[union-attr]


@torch.no_grad()
def record_logits(
    model: nn.Module, examples: Sequence[Example], *, pad_id: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits `(N, L)` of records: the token-weighted mean of their windows' logits."""
    n_logits = int(model.heads.out_features)  # type: ignore[union-attr, arg-type]
    totals = np.zeros((len(examples), n_logits), dtype=np.float32)
    weights = np.zeros((len(examples), 1), dtype=np.float32)
    pairs = [(window, row) for row, example in enumerate(examples) for window in example.windows]
    pairs.sort(key=lambda pair: pair[0].n_tokens)
    model.eval()
    for start in range(0, len(pairs), _EVALUATION_BATCH):
        chunk = pairs[start : start + _EVALUATION_BATCH]
        inputs = tensor_inputs(model, [window for window, _ in chunk], pad_id=pad_id)
        for (window, row), logits in zip(chunk, model(**inputs).numpy(), strict=True):
            totals[row] += logits * window.n_tokens
            weights[row] += window.n_tokens
    return np.asarray(totals / np.maximum(weights, 1.0), dtype=np.float32)


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _gather(value: Any) -> list[Any]:
    _, world = _rank_and_world()
    if world == 1:
        return [value]
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, value)
    return gathered


def _copy(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
