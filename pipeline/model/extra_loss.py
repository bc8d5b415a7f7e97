"""What a step can add to the losses of the labels: distillation, or domains made alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from pipeline.model.batches import Item
    from pipeline.model.network import Classifier


@dataclass(frozen=True)
class WholeBatch:
    """What a part of a batch has to know of all of it.

    `known` has by head how many labels are known, `step` counts the run's steps from 0.
    """

    n_items: int
    known: Mapping[str, int]
    step: int
    total_steps: int


class ExtraLoss(Protocol):
    """A loss beside that of the labels, its weight included; an `nn.Module` is most of one.

    It is called right after the forward pass of `items`, once for each of two passes of R-Drop,
    and may make passes of its own. A rank whose part of the batch is empty does not call it.
    """

    def attach(self, model: Classifier) -> None:
        """Told once which model makes the passes, to hook into its heads or layers."""

    def detach(self) -> None:
        """Leaves the model as it was found."""

    def __call__(self, items: Sequence[Item], logits: Tensor, *, batch: WholeBatch) -> Tensor:
        """This part's share of the whole batch's loss: those of parts and ranks add up to it.

        `logits` `(B, L)` are those of `items`, whose windows were read one after the other.
        """

    def parameters(self) -> Iterator[nn.Parameter]:
        """What it trains of its own: at the heads' rate, averaged over ranks, never shipped."""

    def epoch_numbers(self) -> dict[str, float]:
        """Its numbers of the epoch that ends, for the history; all ranks call it together."""

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes up again at the start of an epoch."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Goes on from such a state."""
