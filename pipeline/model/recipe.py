"""What training does in numbers: epochs, rates by layer and by step, and what stays frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig
    from schemas.train import Precision


# By training records: epochs of a wide encoder, and the batch. Many small batches do little data
# good, few large ones use the hardware where there is much.
_SMALL, _MIDDLE, _LARGE = (4, 32), (3, 48), (2, 96)
# Up to this width, in numbers per token, an encoder counts as small.
_SMALL_WIDTH = 512


@dataclass(frozen=True)
class Recipe:
    """What training does in numbers, after the choices that a task file leaves open.

    `batch_size` is that of an optimizer step, over all workers and accumulated parts.
    """

    epochs: int
    learning_rate: float
    why: str
    batch_size: int = 32
    head_learning_rate: float = 1e-3
    precision: Precision = "fp32"

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs in batches of {self.batch_size}, learning rate "
            f"{self.learning_rate:g}, heads {self.head_learning_rate:g}, {self.precision} "
            f"({self.why})"
        )


def choose_recipe(
    config: TrainConfig, *, n_train: int, hidden_size: int, computes_in_bf16: bool = False
) -> Recipe:
    """Epochs and batch by data-set size, rates by width, unless the task file says them.

    `computes_in_bf16` is about the processor that trains.

    A wide encoder gets a rate of BERT's range, 2e-5 to 5e-5 (Devlin et al. 2019, A.3). A 384-wide
    one wants an order more, and more epochs: with 3e-5 it is still far from fitted after six on
    banking77, with 2e-4 it gets 93 % right. Low-rank updates want about ten times the rate of the
    weights themselves (4e-4 in Hu et al. 2021, D.1), and so do adapters (3e-5 to 3e-3 are
    searched in Houlsby et al. 2019, 3.2).
    """
    epochs, batch = _SMALL if n_train < 10_000 else _MIDDLE if n_train < 100_000 else _LARGE
    why = f"{n_train} training records, encoder {hidden_size} wide"
    if hidden_size <= _SMALL_WIDTH:
        epochs += 2 if n_train < 10_000 else 1
        rate, lora_rate, head_rate = 2e-4, 1e-3, 1e-3
    else:
        rate, lora_rate, head_rate = 3e-5, 4e-4, 5e-4
    if config.lora is not None or config.adapter is not None:
        how = "low-rank updates" if config.adapter is None else "adapters"
        rate, why = lora_rate, f"{why}, {how}"
    precision = config.precision
    if precision is None:
        precision = "bf16" if computes_in_bf16 else "fp32"
    return Recipe(
        epochs=config.epochs or epochs,
        learning_rate=config.learning_rate or rate,
        why=why,
        batch_size=config.batch_size or batch,
        head_learning_rate=config.head_learning_rate or head_rate,
        precision=precision,
    )


def parameter_groups(
    model: Classifier,
    config: TrainConfig,
    recipe: Recipe,
    *,
    beside: Sequence[nn.Parameter] = (),
) -> list[dict[str, Any]]:
    """AdamW groups: lower rates for lower layers, no decay on norms and biases, heads on their own.

    Layer-wise decay follows Howard & Ruder 2018 (discriminative fine-tuning): a layer's rate is
    the next higher layer's times `layer_decay`; embeddings count as the lowest layer, and what
    cloze heads took from pretraining as the highest. What is trained `beside` the model learns as
    fast as heads do.
    """
    depth = model.encoder.config.num_hidden_layers
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = 0.0 if parameter.ndim < 2 else config.weight_decay
        if name.startswith("heads."):
            rate = recipe.head_learning_rate
        else:
            rate = recipe.learning_rate * config.layer_decay ** (depth - layer_of(name, depth))
        groups.setdefault((rate, decay), []).append(parameter)
    for parameter in beside:
        decay = 0.0 if parameter.ndim < 2 else config.weight_decay
        groups.setdefault((recipe.head_learning_rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def layer_of(name: str, depth: int) -> int:
    """1 to `depth` for a layer's parameter, 0 for embeddings, `depth` for what stands above."""
    for part in name.split("."):
        if part.isdigit():
            return int(part) + 1
    return 0 if "embedding" in name else depth


def rate_factor(
    schedule: Literal["linear", "cosine"], total_steps: int, warmup_fraction: float
) -> Callable[[int], float]:
    """Rate factor by step: up from 0 over the warm-up, then down to 0 in a line or half a wave."""
    warmup = max(1, round(total_steps * warmup_fraction))

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        left = max(0.0, (total_steps - step) / max(1, total_steps - warmup))
        return left if schedule == "linear" else (1.0 - math.cos(math.pi * left)) / 2

    return factor


def weight_counts(module: nn.Module) -> tuple[int, int]:
    """How many of a module's weights are trained, and how many there are."""
    counts = [(weight.numel(), weight.requires_grad) for weight in module.parameters()]
    return sum(count for count, trained in counts if trained), sum(count for count, _ in counts)


def freeze_lowest(model: Classifier, layers: int | None) -> None:
    """Keeps embeddings and the `layers` lowest layers as they are; None freezes nothing.

    Embeddings are half of a small encoder: without them a step moves that much less memory.
    """
    if layers is None:
        return
    depth = model.encoder.config.num_hidden_layers
    for name, parameter in model.named_parameters():
        if not name.startswith(("heads.", "cloze.")) and layer_of(name, depth) <= layers:
            parameter.requires_grad = False
