"""Which rows of a partition repeat a value that must be unique, in 16 bytes a row and column."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from pipeline.cells import cell_text
from pipeline.rows import RawRow, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_DIGEST_BYTES = 16
_NO_VALUE = bytes(_DIGEST_BYTES)
_BUCKETS = 16  # sorted one at a time, so that sorting needs little memory beside the digests


class SeenValues:
    """The values of all rows of a partition, by column; a hash of 128 bits stands for each."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._digests = {column: bytearray() for column in columns}

    def add(self, item: RawRow | Rejected) -> None:
        """Takes in the next row; a rejected one claims no value."""
        for column, digests in self._digests.items():
            value = None if isinstance(item, Rejected) else cell_text(item.values.get(column))
            if value is None:
                digests.extend(_NO_VALUE)
            else:
                # A lone surrogate cannot come from a text file, but from a data frame's object.
                text = value.encode("utf-8", errors="surrogatepass")
                digests.extend(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest())

    def repeats(self) -> dict[str, list[int]]:
        """By column, the rows (counted over the partition) whose value an earlier row has."""
        return {
            column: sorted(row for rows in _repeats(digests) for row in rows.tolist())
            for column, digests in self._digests.items()
        }


def _repeats(digests: bytearray) -> Iterator[npt.NDArray[np.int64]]:
    halves = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
    first_bytes = np.frombuffer(digests, dtype=np.uint8)[::_DIGEST_BYTES]
    for bucket in range(_BUCKETS):
        rows = np.flatnonzero(first_bytes % _BUCKETS == bucket)
        low, high = halves[rows, 0], halves[rows, 1]
        order = np.lexsort((high, low))  # stable: of equal values the earliest row comes first
        rows, low, high = rows[order], low[order], high[order]
        is_repeat = (low[1:] == low[:-1]) & (high[1:] == high[:-1]) & ((low | high)[1:] != 0)
        yield rows[1:][is_repeat]
