from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.length_histogram import LengthHistogram
from schemas.profiles import Distribution

LENGTHS = st.lists(st.integers(0, 10**8), min_size=1)


def filled(lengths):
    histogram = LengthHistogram()
    for length in lengths:
        histogram.add(length)
    return histogram


def test_small_lengths_are_exact():
    found = filled([1, 2, 2, 3, 63]).distribution()
    assert found == Distribution(
        count=5, mean=14.2, smallest=1, median=2, p95=63, largest=63,
        bars=((1, 1), (2, 2), (3, 1), (48, 1)),
    )  # fmt: skip


@given(LENGTHS)
def test_quantiles_are_at_most_three_percent_too_low(lengths):
    found = filled(lengths).distribution()
    for share, value in ((0.5, found.median), (0.95, found.p95)):
        exact = int(np.quantile(lengths, share, method="inverted_cdf"))
        assert exact * (1 - 1 / 32) <= value <= exact
    assert (found.smallest, found.largest) == (min(lengths), max(lengths))
    assert found.mean == sum(lengths) / len(lengths)


@given(LENGTHS)
def test_bars_hold_every_length_in_half_doublings(lengths):
    bars = dict(filled(lengths).distribution().bars)
    assert sum(bars.values()) == len(lengths)
    for low, count in bars.items():
        high = low + max(1, 1 << max(0, low.bit_length() - 2))
        assert sum(low <= length < high for length in lengths) == count


@given(LENGTHS, LENGTHS)
def test_two_merged_are_as_one(first, second):
    merged = filled(first)
    merged.merge(filled(second))
    assert merged.distribution() == filled(first + second).distribution()


def test_without_lengths_there_is_nothing_to_tell():
    assert LengthHistogram().distribution() == Distribution()
    merged = LengthHistogram()
    merged.merge(filled([5]))
    assert merged.distribution().smallest == 5
