"""Columns of a few bytes a row: words as codes, yes and no as bytes, numbers as floats."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

OTHER = "(another)"


class Words:
    """Words as codes of one byte, or as many as it takes, -1 for None.

    Of a list of `known` words, all others count as one, so that nothing a customer wrote is kept.
    Without a list, each new word gets a code: for words of ours, such as languages.
    """

    def __init__(self, known: Iterable[str] | None = None) -> None:
        self.categories = [] if known is None else list(dict.fromkeys([*known, OTHER]))
        self._grows = known is None
        self._codes = array(_smallest(len(self.categories)) if known is not None else "h")
        self._code_of = {word: code for code, word in enumerate(self.categories)}

    def append(self, word: str | None) -> None:
        """Takes in the next row."""
        if word is None:
            self._codes.append(-1)
            return
        code = self._code_of.get(word)
        if code is None and self._grows:
            code = self._code_of[word] = len(self.categories)
            self.categories.append(word)
        self._codes.append(self._code_of[OTHER] if code is None else code)

    @property
    def codes(self) -> npt.NDArray[np.integer]:
        """Places in `categories`, -1 for None; a view, not a copy."""
        return np.frombuffer(self._codes, self._codes.typecode)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return len(self._codes) * self._codes.itemsize


def _smallest(categories: int) -> str:
    """The type code of the smallest integers with a sign that number so many categories."""
    return next(code for code in "bhi" if categories <= 2 ** (8 * array(code).itemsize - 1))


class Flags:
    """Yes or no as one byte, None as -1."""

    def __init__(self) -> None:
        self._flags = array("b")

    def append(self, flag: bool | None) -> None:
        """Takes in the next row."""
        self._flags.append(-1 if flag is None else flag)

    @property
    def values(self) -> npt.NDArray[np.floating]:
        """1, 0, or NaN for None; four bytes a row as long as they are looked at."""
        flags = np.frombuffer(self._flags, np.int8)
        return np.where(flags < 0, np.float32(math.nan), flags.astype(np.float32))

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return len(self._flags)


class Numbers:
    """Numbers, NaN for None; `exact` takes eight bytes a row instead of four."""

    def __init__(self, *, exact: bool = False) -> None:
        self._values = array("d" if exact else "f")

    def append(self, number: float | None) -> None:
        """Takes in the next row."""
        self._values.append(math.nan if number is None else number)

    @property
    def values(self) -> npt.NDArray[np.floating]:
        """The numbers; a view, not a copy."""
        return np.frombuffer(self._values, self._values.typecode)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return len(self._values) * self._values.itemsize
