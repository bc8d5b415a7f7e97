"""Fixed shapes give a window the same bytes whoever stands beside it, or say why they do not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.shaped_encoder import (
    Inputs,
    Logits,
    OutOfDeviceMemoryError,
    ShapedEncoder,
    shape_inputs,
)
from pipeline.token_batches import Budget, Shape
from pipeline.window import Window
from schemas.errors import ArtifactError, ConfigError, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = Budget(max_batch_tokens=64, max_tokens=32)


def window(*ids: int) -> Window:
    return Window(ids, (1,) * len(ids), 0, 1)


def row_sums(inputs: Inputs) -> Logits:
    """Two logits a row, from nothing but that row."""
    mask = inputs["attention_mask"]
    ids = (inputs["input_ids"] * mask).sum(axis=1)
    return np.stack([ids, (inputs["token_type_ids"] * mask).sum(axis=1)], axis=1).astype(np.float32)


class FakeSession:
    """Scores by `score`; a batch of more rows than `memory_rows` does not fit."""

    n_logits = 2

    def __init__(self, score: Callable[[Inputs], Logits] = row_sums) -> None:
        self.score = score
        self.memory_rows = 1_000_000
        self.shapes: list[tuple[int, ...]] = []

    def run(self, inputs: Inputs) -> Logits:
        shape = inputs["input_ids"].shape
        self.shapes.append(shape)
        if shape[0] > self.memory_rows:
            raise OutOfDeviceMemoryError("out of memory, wanted 3 GiB")
        assert (inputs["attention_mask"].sum(axis=1) > 0).all(), "a fully masked row"
        return self.score(inputs)


def encoder_of(session: FakeSession) -> ShapedEncoder:
    encoder = ShapedEncoder(session, BUDGET, pad_id=0, vocabulary_size=50)
    session.shapes.clear()
    return encoder


def by_rows(effect: float) -> Callable[[Inputs], Logits]:
    """A device whose kernel, and with it the low bits, follow the number of rows."""

    def score(inputs: Inputs) -> Logits:
        return row_sums(inputs) + np.float32(effect * len(inputs["input_ids"]))

    return score


@given(st.lists(st.lists(st.integers(1, 49), min_size=1, max_size=32), max_size=40))
def test_logits_come_in_the_order_of_the_windows(texts: list[list[int]]) -> None:
    """FAILURES row 10: batches go by length, answers by place."""
    encoder = encoder_of(FakeSession())
    windows = [window(*ids) for ids in texts]
    expected = np.array([[sum(ids), len(ids)] for ids in texts], np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(encoder.logits(windows), expected)


def test_failure_25_a_window_runs_in_one_shape_where_others_would_move_its_bits() -> None:
    session = FakeSession(by_rows(0.25))
    encoder = encoder_of(session)
    mine = window(4, 5, 6)
    alone = encoder.logits([mine])
    among = encoder.logits([window(7) for _ in range(20)] + [mine])
    assert among[-1].tobytes() == alone[0].tobytes()
    assert set(session.shapes) == {(8, 8)}


def test_smaller_shapes_are_used_where_they_gave_the_same_bytes() -> None:
    session = FakeSession()
    encoder = encoder_of(session)
    encoder.logits([window(4, 5, 6)] * 9)
    assert session.shapes == [(8, 8), (1, 8)]
    assert encoder.padding_share == pytest.approx(1 - 27 / 72)


@pytest.mark.parametrize(
    "neighbours",
    [
        lambda logits: logits / np.abs(logits).max(),  # one scale for the whole batch
        lambda logits: logits + np.arange(len(logits))[:, None],  # the place in the batch
    ],
)
def test_failure_25_a_device_where_neighbours_move_scores_is_refused(
    neighbours: Callable[[Logits], Logits],
) -> None:
    session = FakeSession(lambda inputs: neighbours(row_sums(inputs)).astype(np.float32))
    with pytest.raises(ArtifactError, match=r"depend on a window's neighbours \(2 windows of 32"):
        encoder_of(session)


def test_failure_30_a_model_that_overflows_is_refused() -> None:
    session = FakeSession(lambda inputs: np.full_like(row_sums(inputs), np.inf))
    with pytest.raises(ArtifactError, match=r"NaN or infinity on the GPU .*compress\.prefer=\[fp"):
        encoder_of(session)


def test_a_budget_over_the_memory_is_refused_before_the_first_window() -> None:
    session = FakeSession()
    session.memory_rows = 2  # 32 tokens wide it fits, 16 wide it does not
    with pytest.raises(
        ConfigError, match=r"4 windows of 16 tokens .*score\.max_batch_tokens \(64\)"
    ):
        ShapedEncoder(session, BUDGET, pad_id=0, vocabulary_size=50)


def test_a_batch_out_of_memory_is_run_in_halves(caplog: pytest.LogCaptureFixture) -> None:
    session = FakeSession()
    encoder = encoder_of(session)
    windows = [window(*range(1, 2 + n % 3)) for n in range(7)]
    expected = encoder.logits(windows)
    session.shapes.clear()
    session.memory_rows = 2
    with caplog.at_level(logging.WARNING):
        assert encoder.logits(windows).tobytes() == expected.tobytes()
    assert session.shapes == [(8, 8), (4, 8), (2, 8), (2, 8), (4, 8), (2, 8), (2, 8)]
    assert "GPU out of memory: 8 x 8 tokens, trying 4 rows" in caplog.text


def test_failure_39_memory_for_not_even_one_window_ends_with_the_numbers() -> None:
    session = FakeSession()
    encoder = encoder_of(session)
    session.memory_rows = 0
    with pytest.raises(ShardError, match=r"1 windows of 8 tokens do not fit .*\(64\): out of mem"):
        encoder.logits([window(4)] * 5)
    assert session.shapes == [(8, 8), (4, 8), (2, 8), (1, 8)]


def test_halves_are_not_tried_where_they_would_move_bits() -> None:
    session = FakeSession(by_rows(0.25))
    encoder = encoder_of(session)
    session.memory_rows = 4
    with pytest.raises(ShardError, match="8 windows of 8 tokens do not fit"):
        encoder.logits([window(4)])
    assert session.shapes == [(8, 8)]


def test_rows_without_a_window_hold_one_token() -> None:
    """FAILURES rows 28 and 29: padding is on the right, and no row is wholly masked."""
    inputs = shape_inputs([window(5, 6), window(7)], Shape(3, 4), pad_id=9)
    assert inputs["input_ids"].tolist() == [[5, 6, 9, 9], [7, 9, 9, 9], [9, 9, 9, 9]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert inputs["token_type_ids"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int64)}
