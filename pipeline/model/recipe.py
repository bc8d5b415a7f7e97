"""What training does in numbers: epochs, rates by layer and by step, and what stays frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from schemas.task import TrainConfig


@dataclass(frozen=True)
class Recipe:
    """What training does in numbers, after the choices that a task file leaves open."""

    epochs: int
    learning_rate: float
    why: str


def choose_recipe(config: TrainConfig, *, n_train: int, hidden_size: int) -> Recipe:
    """Epochs by data-set size and learning rate by width, unless the task file says them.

    A 384-wide encoder wants a rate an order above BERT-base's 2e-5 to 5e-5 (Devlin et al. 2019,
    A.3): with 3e-5 it is still far from fitted after six epochs on banking77.
    """
    epochs = 6 if n_train < 12_000 else 4 if n_train < 100_000 else 2
    rate = 2e-4 if hidden_size <= 512 else 3e-5
    return Recipe(
        epochs=config.epochs or epochs,
        learning_rate=config.learning_rate or rate,
        why=f"{n_train} training records, encoder {hidden_size} wide",
    )


def parameter_groups(
    model: nn.Module, config: TrainConfig, learning_rate: float
) -> list[dict[str, Any]]:
    """AdamW groups: lower rates for lower layers, no decay on norms and biases, heads on their own.

    Layer-wise decay follows Howard & Ruder 2018 (discriminative fine-tuning): a layer's rate is
    the next higher layer's times `layer_decay`; embeddings count as the lowest layer.
    """
    depth = int(model.encoder.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = 0.0 if parameter.ndim < 2 else config.weight_decay
        if name.startswith("heads."):
            rate = config.head_learning_rate
        else:
            rate = learning_rate * config.layer_decay ** (depth - layer_of(name, depth))
        groups.setdefault((rate, decay), []).append(parameter)
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


def linear_warmup(total_steps: int, warmup_fraction: float) -> Callable[[int], float]:
    """Rate factor by step: up from 0 over the warm-up, then down to 0 in a line."""
    warmup = max(1, round(total_steps * warmup_fraction))

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total_steps - step) / max(1, total_steps - warmup))

    return factor


def freeze_lowest(model: nn.Module, layers: int | None) -> None:
    """Keeps embeddings and the `layers` lowest layers as they are; None freezes nothing.

    Embeddings are half of a small encoder: without them a step moves that much less memory.
    """
    if layers is None:
        return
    depth = int(model.encoder.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
    for name, parameter in model.named_parameters():
        if not name.startswith("heads.") and layer_of(name, depth) <= layers:
            parameter.requires_grad = False
