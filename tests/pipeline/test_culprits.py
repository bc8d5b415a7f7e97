"""Halving finds exactly the rows that end a process alone, in few tries."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pipeline.culprits import find_culprits


@given(
    st.integers(1, 200).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))
    )
)
def test_exactly_the_culprits_are_found_in_order_and_in_bounded_tries(
    case: tuple[int, set[int]],
) -> None:
    n, culprits = case
    asked: list[tuple[int, ...]] = []

    def survives(rows: tuple[int, ...]) -> bool:
        asked.append(rows)
        return culprits.isdisjoint(rows)

    assert find_culprits(tuple(range(n)), survives) == tuple(sorted(culprits))
    assert len(asked) <= 2 * len(culprits) * math.ceil(math.log2(max(n, 2)))
    # Whatever is found was asked alone, but where there is only one row.
    assert n == 1 or all((row,) in asked for row in culprits)


def test_rows_that_only_do_it_together_are_no_culprits() -> None:
    assert find_culprits((4, 5, 6, 7), lambda rows: not {5, 6} <= set(rows)) == ()
