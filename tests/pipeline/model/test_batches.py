"""What a step reads: every item once, parts that add up, lengths that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.batches import (
    Item,
    batches,
    micro_batches,
    padded_length,
    takes_segments,
    tensor_inputs,
    training_items,
)
from pipeline.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig


def window(n_tokens: int, first: int = 2) -> Window:
    return Window((first, *[3] * (n_tokens - 1)), (0,) * n_tokens, 0, 1)


def with_windows(example: Example, *windows: Window) -> Example:
    return type(example)(**{**vars(example), "windows": windows})


@given(
    st.lists(st.integers(1, 256), min_size=1, max_size=300), st.integers(1, 7), st.integers(0, 5)
)
def test_every_row_is_in_exactly_one_batch(lengths: list[int], size: int, seed: int) -> None:
    made = list(batches(lengths, batch_size=size, seed=seed))
    assert sorted(row for batch in made for row in batch) == list(range(len(lengths)))
    assert max(map(len, made)) <= size
    # The schedule counts on this number.
    assert len(made) == -(-len(lengths) // size)


def test_orders_follow_the_seed() -> None:
    lengths = [row % 17 + 1 for row in range(100)]
    one, again, other = (list(batches(lengths, batch_size=8, seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_lengths_are_grouped_but_not_sorted() -> None:
    lengths = [(row * 37) % 200 + 1 for row in range(400)]
    made = [[lengths[row] for row in batch] for batch in batches(lengths, batch_size=8, seed=3)]
    padded = sum(max(batch) * len(batch) for batch in made)
    assert padded < 1.1 * sum(lengths)  # in arrival order it is about twice as many
    firsts = [batch[0] for batch in made]
    assert firsts != sorted(firsts)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9))
def test_micro_batches_of_all_ranks_are_the_batch(size: int, world: int, parts: int) -> None:
    batch = [Item((window(4),), row) for row in range(size)]
    shares = [micro_batches(batch, rank=rank, world=world, parts=parts) for rank in range(world)]
    assert sorted(item.row for share in shares for part in share for item in part) == [*range(size)]
    # Ranks pass over the model together, so each makes as many passes.
    assert len({len(share) for share in shares}) == 1
    assert 1 <= len(shares[0]) <= parts


@pytest.mark.parametrize(
    ("how", "rows"),
    [("mean", [0, 0, 1]), ("max", [0, 0, 1]), ("first", [0, 1]), ("attention", [0, 1])],
)
def test_items_by_pooling(
    how: str,
    rows: list[int],
    make_example: Callable[..., Example],
    toy_config: Callable[..., TrainConfig],
) -> None:
    long, short = [window(9), window(5), window(7)], [window(3)]
    examples = [with_windows(make_example("r"), *each) for each in (long, short)]
    config = toy_config(max_windows_per_record=2, window_pooling=how)
    items = training_items(examples, config, epoch=0)
    assert [item.row for item in items] == rows
    if how == "attention":
        assert [len(item.windows) for item in items] == [2, 1]
    else:
        assert [item.windows for item in items] == [(long[n],) for n in range(len(rows) - 1)] + [
            (short[0],)
        ]


def test_an_epoch_draws_windows_by_seed_and_keeps_their_order(
    make_example: Callable[..., Example], toy_config: Callable[..., TrainConfig]
) -> None:
    example = with_windows(make_example("r"), *[window(3, first) for first in range(9)])
    config = toy_config(max_windows_per_record=3, window_pooling="attention")

    def drawn(epoch: int) -> list[int]:
        (item,) = training_items([example], config, epoch=epoch)
        return [window.input_ids[0] for window in item.windows]

    by_epoch = [drawn(epoch) for epoch in range(20)]
    assert by_epoch == [drawn(epoch) for epoch in range(20)]
    assert all(firsts == sorted(set(firsts)) and len(firsts) == 3 for firsts in by_epoch)
    assert {first for firsts in by_epoch for first in firsts} == set(range(9))


def test_an_item_is_as_long_as_its_longest_window() -> None:
    assert Item((window(4), window(11), window(6)), 0).n_tokens == 11


def test_tensors_are_padded_to_a_multiple(tiny_model: Classifier) -> None:
    inputs = tensor_inputs(tiny_model, [window(9), window(4)], pad_id=7)
    assert set(inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert inputs["input_ids"].shape == (2, 16) == (2, padded_length([window(9), window(4)]))
    assert inputs["attention_mask"].sum(dim=1).tolist() == [9, 4]
    assert inputs["input_ids"][1, 4:].unique().tolist() == [7]
    assert padded_length([window(8)]) == 8


def test_bert_takes_segments(tiny_model: Classifier) -> None:
    assert takes_segments(tiny_model)
