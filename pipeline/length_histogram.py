"""Lengths in bounded memory: exact where they are small, within 3 % where they are large."""

from __future__ import annotations

from collections import Counter

from schemas.profiles import Distribution

_SIGNIFICANT_BITS = 6


class LengthHistogram:
    """Counts lengths by their six leading bits, so that a billion of them fit into 900 numbers."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total = 0
        self._smallest: int | None = None
        self._largest = 0

    def add(self, length: int) -> None:
        """Takes in one length."""
        self._counts[_rounded_down(length, _SIGNIFICANT_BITS)] += 1
        self._total += length
        self._largest = max(self._largest, length)
        if self._smallest is None or length < self._smallest:
            self._smallest = length

    def merge(self, other: LengthHistogram) -> None:
        """Takes in all that another one has."""
        self._counts += other._counts
        self._total += other._total
        self._largest = max(self._largest, other._largest)
        known = [low for low in (self._smallest, other._smallest) if low is not None]
        self._smallest = min(known, default=None)

    def distribution(self) -> Distribution:
        """The summary, and bars to draw."""
        count = self._counts.total()
        if not count:
            return Distribution()
        bars: Counter[int] = Counter()
        for low, found in self._counts.items():
            bars[_rounded_down(low, 2)] += found
        return Distribution(
            count=count,
            mean=self._total / count,
            smallest=self._smallest or 0,
            median=self._quantile(0.5),
            p95=self._quantile(0.95),
            largest=self._largest,
            bars=tuple(sorted(bars.items())),
        )

    def _quantile(self, share: float) -> int:
        """The length that at least `share` of all lengths do not exceed."""
        left = share * self._counts.total()
        for low in sorted(self._counts):
            left -= self._counts[low]
            if left <= 0:
                return low
        return self._largest


def _rounded_down(length: int, bits: int) -> int:
    """A number with all but its leading bits cleared."""
    spare = max(0, length.bit_length() - bits)
    return length >> spare << spare
