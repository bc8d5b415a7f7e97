"""Batches of few shapes: every window once, within the budget, by its own length alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.token_batches import Budget, Shape, halvings, padding_share, token_batches

BUDGET = Budget(max_batch_tokens=512, max_tokens=128)
LENGTHS = st.lists(st.integers(1, 128), max_size=200)
BUDGETS = st.builds(
    Budget,
    max_batch_tokens=st.integers(64, 4096),
    max_tokens=st.integers(128, 512),
    max_batch_rows=st.integers(1, 64),
)


@given(LENGTHS, BUDGETS)
def test_every_window_is_in_exactly_one_batch_that_holds_it(
    lengths: list[int], budget: Budget
) -> None:
    batches = token_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch.indices) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch.indices) <= batch.shape.rows
        assert all(lengths[index] <= batch.shape.width for index in batch.indices)


@given(LENGTHS, BUDGETS)
def test_budget_holds_but_for_a_window_alone(lengths: list[int], budget: Budget) -> None:
    for batch in token_batches(lengths, budget):
        assert batch.shape.rows <= budget.max_batch_rows
        assert batch.shape.tokens <= budget.max_batch_tokens or batch.shape.rows == 1


@given(LENGTHS, LENGTHS, BUDGETS)
def test_a_windows_shape_is_its_own(mine: list[int], others: list[int], budget: Budget) -> None:
    """FAILURES row 25: neighbours must not choose the kernel that a window runs in."""

    def shapes(lengths: list[int]) -> dict[int, Shape]:
        batches = token_batches(lengths, budget)
        return {index: batch.shape for batch in batches for index in batch.indices}

    alone, among = shapes(mine), shapes([*mine, *others])
    assert all(among[index] == shape for index, shape in alone.items())
    assert set(alone.values()) <= set(budget.shapes())


def test_failure_39_a_window_over_the_budget_stands_alone_and_nothing_loops() -> None:
    batches = token_batches([100, 5000, 5000], BUDGET)
    assert [batch.indices for batch in batches] == [(1,), (2,), (0,)]
    assert batches[0].shape == (1, 5000)


def test_the_widest_batch_comes_first_and_equal_windows_keep_their_order() -> None:
    batches = token_batches([8, 120, 7, 120, 8], BUDGET)
    assert [batch.indices for batch in batches] == [(1, 3), (0, 4, 2)]
    assert [batch.shape for batch in batches] == [(4, 128), (64, 8)]


def test_the_rest_of_a_width_takes_the_smallest_shape_that_holds_it() -> None:
    smaller = {8: halvings(64)}
    batches = token_batches([8] * 69 + [120], BUDGET, smaller=smaller)
    assert [batch.shape for batch in batches] == [(4, 128), (64, 8), (8, 8)]
    assert [len(batch.indices) for batch in batches] == [1, 64, 5]


@pytest.mark.parametrize(
    ("length", "width"), [(1, 8), (8, 8), (9, 16), (64, 64), (65, 80), (100, 112), (113, 120)]
)
def test_widths_are_few_and_never_beyond_the_encoders_positions(length: int, width: int) -> None:
    assert Budget(max_batch_tokens=512, max_tokens=120).width(length) == width


def test_a_width_wastes_at_most_a_fifth_above_the_shortest_texts() -> None:
    budget = Budget(max_batch_tokens=16_384, max_tokens=512)
    for length in range(33, 513):
        assert budget.width(length) % 8 == 0
        assert 1 - length / budget.width(length) <= 0.2
    assert len(budget.shapes()) == 20
    assert budget.shapes()[0] == (32, 512)


def test_halvings_go_down_to_one() -> None:
    assert halvings(20) == (10, 5, 2, 1)
    assert halvings(1) == ()


def test_padding_share_counts_rows_that_are_filled_up() -> None:
    lengths = [120, 120]
    batches = token_batches(lengths, BUDGET)
    assert padding_share(batches, lengths) == pytest.approx(1 - 240 / 512)
    assert padding_share([], []) == 0.0
