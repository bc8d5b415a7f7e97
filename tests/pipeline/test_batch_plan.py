"""Which windows go into one call, and how fast that is expected to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch_plan import (
    ONE_A_CALL,
    BatchTable,
    batch_table,
    check_batching,
    equal_length_calls,
    expected_tokens_per_s,
)
from schemas.calibration import Calibration, Speed
from schemas.errors import ConfigError

TABLE = BatchTable(((8, 16), (32, 4)))


def calibration(*speeds: tuple[int, int, float], same_bytes: bool = True) -> Calibration:
    return Calibration(
        host="h", model="m", threads=1, same_bytes=same_bytes,
        speeds=tuple(Speed(n_tokens=n, rows=rows, tokens_per_s=rate) for n, rows, rate in speeds),
    )  # fmt: skip


MEASURED = calibration(
    (8, 1, 100.0), (8, 2, 150.0), (8, 4, 140.0),
    (16, 1, 120.0), (16, 2, 121.0), (16, 4, 130.0),
    (64, 1, 200.0), (64, 2, 202.0),
    (128, 1, 180.0),
)  # fmt: skip


def test_rows_are_those_of_the_next_length_that_was_measured() -> None:
    assert [TABLE.rows(n) for n in (1, 8, 9, 32, 33, 512)] == [16, 16, 4, 4, 1, 1]
    assert ONE_A_CALL.rows(1) == 1


def test_a_table_reads_as_a_sentence() -> None:
    assert str(TABLE) == "16 windows a call to 8 tokens, 4 to 32, else 1"
    assert str(ONE_A_CALL) == "1 window a call"


def test_the_fastest_rows_win_where_they_gain() -> None:
    assert batch_table(MEASURED, "auto") == BatchTable(((8, 2), (16, 4)))


def test_one_a_call_is_one_a_call() -> None:
    assert batch_table(MEASURED, "one") == ONE_A_CALL


def test_equal_length_takes_several_even_where_they_gain_nothing() -> None:
    slower = calibration((8, 1, 100.0), (8, 2, 90.0), (8, 4, 95.0), (16, 1, 100.0))
    assert batch_table(slower, "auto") == ONE_A_CALL
    assert batch_table(slower, "equal_length") == BatchTable(((8, 4),))


def test_failure_25_no_batch_where_neighbours_move_a_bit() -> None:
    moved = MEASURED.model_copy(update={"same_bytes": False})
    assert batch_table(moved, "auto") == ONE_A_CALL
    with pytest.raises(ConfigError, match=r"not the same bytes in a batch .*batching=auto"):
        batch_table(moved, "equal_length")


def test_failure_25_dynamic_int8_is_never_batched() -> None:
    check_batching("auto", "int8_dynamic")
    check_batching("equal_length", "int8_static")
    with pytest.raises(ConfigError, match=r"int8_dynamic takes its activation scale from the who"):
        check_batching("equal_length", "int8_dynamic")


@given(
    st.lists(st.integers(1, 40), max_size=120),
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from([2, 4, 8, 16])), max_size=4),
)
def test_every_window_is_in_one_call_with_its_like(
    lengths: list[int], steps: list[tuple[int, int]]
) -> None:
    table = BatchTable(tuple(sorted(steps)))
    calls = list(equal_length_calls(lengths, table))
    assert sorted(index for call in calls for index in call) == list(range(len(lengths)))
    for call in calls:
        (n_tokens,) = {lengths[index] for index in call}
        assert len(call) <= table.rows(n_tokens)
        assert len(call).bit_count() == 1  # only sizes that were checked
        assert call == sorted(call)


def test_a_rest_is_made_up_of_smaller_calls() -> None:
    calls = equal_length_calls([8] * 23 + [40] * 2, TABLE)
    assert [len(call) for call in calls] == [16, 4, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("window_tokens", "rate"),
    [(4, 150.0), (8, 150.0), (12, 140.0), (16, 130.0), (40, 165.0), (96, 190.0), (256, 180.0)],
)
def test_speed_is_expected_between_what_was_measured(window_tokens: float, rate: float) -> None:
    table = batch_table(MEASURED, "auto")
    got = expected_tokens_per_s(MEASURED, table, window_tokens=window_tokens)
    assert got == pytest.approx(rate)
