"""The workers of one training run: which one this is, and how their gradients come together."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pipeline.model.layers import encoder_layers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

Trained = TypeVar("Trained", bound=nn.Module)
_WHOLE = StateDictOptions(full_state_dict=True)


class Ranks(Protocol):
    """How one model is trained by all ranks.

    `module` is called for logits, and the optimizer holds the parameters of `trained`. Both may be
    the model itself.
    """

    rank: int
    world: int
    module: nn.Module
    trained: Classifier

    def passing(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Surrounds a forward and backward pass; in a step's last one gradients are averaged."""

    def update_model(self) -> None:
        """Brings the weights that were trained into the model; all ranks call it together."""

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The optimizer's whole state; all ranks call it together."""

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Takes up such a state."""


def ranks_for(model: Classifier, config: TrainConfig) -> Ranks:
    """How `train.strategy` has the ranks of this process group train `model`."""
    _, world = rank_and_world()
    return Shards(model) if config.strategy == "fsdp" and world > 1 else Replicas(model)


class Replicas(Generic[Trained]):
    """Each rank has the whole model, gradients and optimizer state; or there is one rank only."""

    def __init__(self, model: Trained) -> None:
        self.rank, self.world = rank_and_world()
        self.trained = model
        self.module: nn.Module = DistributedDataParallel(model) if self.world > 1 else model

    def passing(self, *, is_last: bool) -> AbstractContextManager[None]:
        """See `Ranks`."""
        if is_last or not isinstance(self.module, DistributedDataParallel):
            return nullcontext()
        return self.module.no_sync()

    def update_model(self) -> None:
        """Does nothing: the model is what is trained."""

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """See `Ranks`."""
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """See `Ranks`."""
        optimizer.load_state_dict(state)


class Shards:
    """Each rank has its share of a copy's weights, gradients and optimizer state (FSDP2).

    The model itself stays whole, so that validation, the best epoch's weights and checkpoints are
    what they are without shards; it costs one copy of the weights, of four that training needs.
    """

    def __init__(self, model: Classifier) -> None:
        self.rank, self.world = rank_and_world()
        self._model = model
        self.trained = copy.deepcopy(model)
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, (self.world,))
        # Layer by layer, so that only one layer's weights are whole at a time.
        # Layers that share their weights, as ALBERT's, are none: the model is sharded as one.
        for layer in encoder_layers(self.trained.encoder):
            fully_shard(layer, mesh=mesh)
        self._sharded = fully_shard(self.trained, mesh=mesh)
        self.module: nn.Module = self.trained

    def passing(self, *, is_last: bool) -> AbstractContextManager[None]:
        """See `Ranks`."""
        self._sharded.set_requires_gradient_sync(is_last)
        return nullcontext()

    def update_model(self) -> None:
        """See `Ranks`."""
        self._model.load_state_dict(get_model_state_dict(self.trained, options=_WHOLE))

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """See `Ranks`; the state is by parameter name."""
        return get_optimizer_state_dict(self.trained, optimizer, options=_WHOLE)

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """See `Ranks`."""
        set_optimizer_state_dict(self.trained, optimizer, state, options=_WHOLE)


def rank_and_world() -> tuple[int, int]:
    """This process's rank and how many there are; 0 and 1 outside a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(value: Any) -> list[Any]:
    """The values of all ranks, in their order; all ranks call it together."""
    _, world = rank_and_world()
    if world == 1:
        return [value]
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, value)
    return gathered


def sum_over_ranks(value: Tensor) -> float:
    """The sum of all ranks' values, the same on each; all ranks call it together."""
    total = value.detach().clone()
    if rank_and_world()[1] > 1:
        dist.all_reduce(total)
    return float(total)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Gives weights that no `Ranks` holds the mean of all ranks' gradients; all call it together.

    A rank that has no gradient counts as zero.
    """
    _, world = rank_and_world()
    if world == 1:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def whole_number(value: Tensor) -> float:
    """A tensor of one number as it is over all shares; all ranks call it together."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)
