"""Training against telling domains apart: gradient reversal between encoder and a classifier."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.model.batches import tensor_inputs
from pipeline.model.ranks import gather
from pipeline.model.steps import passes_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.batches import Item
    from pipeline.model.extra_loss import WholeBatch
    from pipeline.model.network import Classifier
    from pipeline.window import Window
    from schemas.task import TrainConfig
    from schemas.train import DomainAdversarialConfig, Precision

_SOURCE, _TARGET = 0.0, 1.0
_STEEPNESS = 10.0  # gamma of Ganin et al. 2016, 5.2.2


class DomainLoss(nn.Module):
    """How well a small classifier tells labelled windows from those of another domain.

    The classifier learns to do it, the encoder the opposite: between them the gradient is reversed
    (Ganin et al. 2016). Beside each item as many windows of the target domain are read, drawn by
    seed, step and record alone, so that parts and ranks together read what one pass would. Its
    passes are its own: a loss that looks at those of the batch must be called before it.
    """

    def __init__(
        self,
        target: Sequence[Window],
        *,
        config: DomainAdversarialConfig,
        hidden_size: int,
        precision: Precision,
        pad_id: int,
        seed: int,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.classifier = nn.Sequential(
                nn.Linear(hidden_size, config.width), nn.ReLU(), nn.Linear(config.width, 1)
            )
        self._target, self._weight = tuple(target), config.weight
        self._precision, self._pad_id, self._seed = precision, pad_id, seed
        self._right, self._read = 0, 0
        self._vectors = torch.empty(0)
        self._models: tuple[Classifier, ...] = ()  # no child: its weights are not this loss's

    def attach(self, model: Classifier) -> None:
        """See `ExtraLoss`; a window's vector is what the heads read."""
        self._models = (model,)
        self._hook = model.heads.register_forward_pre_hook(self._keep)
        self.to(next(model.parameters()).device)

    def detach(self) -> None:
        """See `ExtraLoss`."""
        self._hook.remove()
        self._vectors, self._models = torch.empty(0), ()

    def forward(self, items: Sequence[Item], logits: Tensor, *, batch: WholeBatch) -> Tensor:
        """See `ExtraLoss`: the mean over both domains' windows, those of an item as one."""
        del logits
        strength = reversal_strength(batch.step / batch.total_steps)
        shares = [1 / len(item.windows) for item in items for _ in item.windows]
        total = torch.zeros((), device=self._vectors.device)
        source = self._vectors
        for vectors, domain in ((source, _SOURCE), (self._target_vectors(items, batch), _TARGET)):
            says = self.classifier(reverse_gradient(vectors.float(), strength)).squeeze(1)  # (W,)
            losses = nn.functional.binary_cross_entropy_with_logits(
                says, torch.full_like(says, domain), reduction="none"
            )
            total = total + (losses * losses.new_tensor(shares)).sum()
            self._right += int(((says > 0) == bool(domain)).sum())
            self._read += len(says)
        return self._weight * total / (2 * batch.n_items)

    def epoch_numbers(self) -> dict[str, float]:
        """Share of windows whose domain was told right: 0.5 where domains look alike."""
        counts = gather((self._right, self._read))
        self._right, self._read = 0, 0
        return {"domain_accuracy": sum(right for right, _ in counts) / sum(n for _, n in counts)}

    def _target_vectors(self, items: Sequence[Item], batch: WholeBatch) -> Tensor:
        """Vectors `(W, H)` of as many windows of the target domain as `items` have."""
        windows = []
        for item in items:
            chooser = random.Random(f"{self._seed}:{batch.step}:{item.row}")  # noqa: S311 - a sample
            windows += chooser.choices(self._target, k=len(item.windows))
        (model,) = self._models
        inputs = tensor_inputs(model, windows, pad_id=self._pad_id)
        with passes_in(self._precision, self._vectors.device.type):
            model(**inputs)
        return self._vectors

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._vectors = inputs[0]  # (W, H)


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grads[0], None


def reverse_gradient(vectors: Tensor, strength: float) -> Tensor:
    """The same vectors, whose gradient comes back `-strength` times as large."""
    reversed_: Tensor = _Reversal.apply(vectors, strength)  # type: ignore[no-untyped-call]
    return reversed_


def reversal_strength(done: float) -> float:
    """0 at the start and nearly 1 at the end, by the share of training that is done.

    Ganin et al. 2016, 5.2.2: at first the classifier knows nothing that were worth unlearning.
    """
    return 2.0 / (1.0 + math.exp(-_STEEPNESS * done)) - 1.0


def domain_losses(
    target: Sequence[Window],
    config: TrainConfig,
    *,
    hidden_size: int,
    precision: Precision,
    pad_id: int,
) -> tuple[DomainLoss, ...]:
    """What `train.domain_adversarial` adds to a step: a loss, or none where it is null."""
    if config.domain_adversarial is None:
        return ()
    loss = DomainLoss(
        target, config=config.domain_adversarial, hidden_size=hidden_size, precision=precision,
        pad_id=pad_id, seed=config.seed,
    )  # fmt: skip
    return (loss,)
