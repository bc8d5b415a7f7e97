"""Windows into batches of few fixed shapes, each within a budget of padded tokens.

A window's shape follows from its own length alone, never from its neighbours: on a GPU the kernel
that is chosen, and with it the low bits of a score, depend on the shape of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Tensor cores want lengths in multiples of 8. Above 64 tokens the steps grow to a quarter of a
# power of two: 16 widths up to 256 tokens, and at most a fifth of a row is padding.
_MULTIPLE = 8


class Shape(NamedTuple):
    """What one call of the encoder is given: `rows` windows padded to `width` tokens."""

    rows: int
    width: int

    @property
    def tokens(self) -> int:
        """Tokens of the batch, padding included."""
        return self.rows * self.width


@dataclass(frozen=True)
class Budget:
    """What a batch may hold: padded tokens, rows, and the longest window that there can be."""

    max_batch_tokens: int
    max_tokens: int
    max_batch_rows: int = 1024

    def width(self, length: int) -> int:
        """The padded length of a window; never more than the encoder may have positions for."""
        step = max(_MULTIPLE, 1 << max(0, (length - 1).bit_length() - 3))
        return max(length, min(-(-length // step) * step, self.max_tokens))

    def full(self, width: int) -> Shape:
        """The shape of a full batch of this width; one row where a single one is over budget."""
        return Shape(max(1, min(self.max_batch_tokens // width, self.max_batch_rows)), width)

    def shapes(self) -> tuple[Shape, ...]:
        """Every full shape, the widest first: what does not fit into memory shows at once."""
        widths = {self.width(length) for length in range(1, self.max_tokens + 1)}
        return tuple(self.full(width) for width in sorted(widths, reverse=True))


@dataclass(frozen=True)
class TokenBatch:
    """Windows, by their index, that go into one call; the rows beyond them are filled up."""

    indices: tuple[int, ...]
    shape: Shape


def halvings(rows: int) -> tuple[int, ...]:
    """The row counts below `rows` that are worth trying: a half, a quarter, down to one."""
    return tuple(rows >> shift for shift in range(1, rows.bit_length()))


def token_batches(
    lengths: Sequence[int], budget: Budget, *, smaller: Mapping[int, Sequence[int]] | None = None
) -> list[TokenBatch]:
    """Batches of windows by length, the widest first; each index is in exactly one.

    `smaller` has, by width, row counts below the full one that may be used: the last windows of a
    width take the smallest shape that holds them.
    """
    by_length = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[TokenBatch] = []
    for width, group in groupby(by_length, key=lambda index: budget.width(lengths[index])):
        shapes = [budget.full(width)]
        shapes += [Shape(rows, width) for rows in (smaller or {}).get(width, ())]
        batches += _of_one_width(tuple(group), shapes)
    return batches


def padding_share(batches: Sequence[TokenBatch], lengths: Sequence[int]) -> float:
    """Padding, filled-up rows included, as a share of all tokens that are computed; 0 for none."""
    computed = sum(batch.shape.tokens for batch in batches)
    return 1 - sum(lengths) / computed if computed else 0.0


def _of_one_width(indices: tuple[int, ...], shapes: Sequence[Shape]) -> Iterator[TokenBatch]:
    full = shapes[0].rows
    for start in range(0, len(indices), full):
        chosen = indices[start : start + full]
        shape = min(shape for shape in shapes if shape.rows >= len(chosen))
        yield TokenBatch(chosen, shape)
