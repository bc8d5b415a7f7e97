from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.compact_columns import OTHER, Flags, Numbers, Words


def words_of(column):
    return [None if code < 0 else column.categories[code] for code in column.codes]


def test_words_that_are_not_known_are_not_kept():
    column = Words(("web", "app"))
    for word in ("app", "my secret", None, "web"):
        column.append(word)
    assert words_of(column) == ["app", OTHER, None, "web"]
    assert column.nbytes == 4


@given(st.lists(st.one_of(st.none(), st.sampled_from(["en", "de", "zh"]))))
def test_words_without_a_list_come_back_as_they_were(words):
    column = Words()
    for word in words:
        column.append(word)
    assert words_of(column) == words


def test_many_known_words_take_more_bytes():
    for known, size in ((100, 1), (1000, 2), (40_000, 4)):
        column = Words(str(number) for number in range(known))
        column.append(str(known - 1))
        column.append("another")
        assert words_of(column) == [str(known - 1), OTHER]
        assert column.nbytes == 2 * size


@given(st.lists(st.one_of(st.none(), st.floats(width=32, allow_nan=False), st.integers(0, 2**24))))
def test_numbers_come_back_as_they_were(numbers):
    for exact in (False, True):
        column = Numbers(exact=exact)
        for number in numbers:
            column.append(number)
        found = [None if np.isnan(value) else float(value) for value in column.values]
        assert found == numbers


def test_flags_are_one_byte():
    column = Flags()
    for flag in (True, None, False):
        column.append(flag)
    assert [None if np.isnan(value) else bool(value) for value in column.values] == [
        True, None, False,
    ]  # fmt: skip
    assert column.nbytes == 3
    assert Flags().values.shape == Numbers().values.shape == Words().codes.shape == (0,)
