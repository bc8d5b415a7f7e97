"""Heads and neurons that are there but count for less: what importance is the slope along."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

    from pipeline.model.prune.anatomy import Block


@contextmanager
def masked(blocks: Iterable[tuple[Block, Tensor]]) -> Iterator[None]:
    """Inside the block each group of numbers counts as much as its mask says.

    A mask has a factor for each group `(G,)`, or for each group and row of the batch `(B, G)`. One
    of zeros and ones gives the logits of the model from which the groups are cut.
    """
    with ExitStack() as stack:
        for block, mask in blocks:
            hook = partial(_scaled, mask=mask, group=block.group)
            stack.callback(block.reader.register_forward_pre_hook(hook).remove)
        yield


def _scaled(
    reader: nn.Module, given: tuple[Any, ...], *, mask: Tensor, group: int
) -> tuple[Any, ...]:
    """What the reader gets, `(B, T, G * group)`, times the mask."""
    del reader
    factors = mask.repeat_interleave(group, dim=-1)
    if factors.ndim == 2:
        factors = factors[:, None]  # (B, 1, G * group)
    return (given[0] * factors, *given[1:])
