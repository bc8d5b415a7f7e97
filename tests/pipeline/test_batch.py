"""Windows into padded arrays."""

from __future__ import annotations

import pytest

from pipeline.batch import window_inputs
from pipeline.window import Window

SHORT = Window((5, 6), (0, 0), 0, 1)
LONG = Window((7, 8, 9), (0, 1, 1), 0, 2)


def test_one_window_alone_has_no_padding() -> None:
    inputs = window_inputs([LONG])
    assert inputs["input_ids"].tolist() == [[7, 8, 9]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1]]
    assert inputs["token_type_ids"].tolist() == [[0, 1, 1]]
    assert {str(array.dtype) for array in inputs.values()} == {"int64"}


def test_padding_is_on_the_right_and_masked() -> None:
    """FAILURES row 29: fused attention assumes right padding."""
    inputs = window_inputs([SHORT, LONG], pad_id=1)
    assert inputs["input_ids"].tolist() == [[5, 6, 1], [7, 8, 9]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(("multiple", "width"), [(1, 3), (2, 4), (3, 3), (8, 8)])
def test_width_is_a_multiple(multiple: int, width: int) -> None:
    assert window_inputs([SHORT, LONG], multiple=multiple)["input_ids"].shape == (2, width)
