"""What is made ahead comes in order, carries errors over, and leaves no thread behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ahead import ahead
from pipeline.heads import head_slices
from pipeline.inference import ModelInference
from pipeline.window import Window, Windows
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt


@given(st.lists(st.integers()), st.integers(1, 4))
def test_items_come_in_order(items: list[int], depth: int) -> None:
    assert list(ahead(items, depth=depth)) == items


def test_the_next_item_is_made_while_the_caller_is_busy() -> None:
    second_is_made = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        second_is_made.set()
        yield 2

    items = ahead(source(), depth=1)
    assert next(items) == 1
    assert second_is_made.wait(timeout=30)  # before anybody has asked for it
    assert list(items) == [2]


def test_no_more_is_made_than_the_queue_holds() -> None:
    made: list[int] = []
    third_is_made = threading.Event()

    def source() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 2:
                third_is_made.set()
            yield number

    items = ahead(source(), depth=1)
    assert next(items) == 0
    assert third_is_made.wait(timeout=30)  # one in the queue, one that waits to be put there
    assert made == [0, 1, 2]
    assert list(items) == list(range(1, 100))


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("from the source")

    items = ahead(source())
    assert next(items) == 1
    with pytest.raises(KeyError, match="from the source"):
        next(items)


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_a_caller_that_stops_early_leaves_no_thread(taken: int) -> None:
    items = ahead(iter(range(1000)), depth=1)
    assert [next(items) for _ in range(taken)] == list(range(taken))
    items.close()
    assert [t for t in threading.enumerate() if t.name == "nightmill-ahead"] == []


def test_a_caller_that_fails_leaves_no_thread() -> None:
    def consume() -> None:
        for number in ahead(range(1000)):
            if number == 3:
                raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="the caller's own"):
        consume()
    assert [t for t in threading.enumerate() if t.name == "nightmill-ahead"] == []


class Texts:
    """A text flow whose windows are made as they are asked for: one of a token each."""

    def __init__(self) -> None:
        self.second_is_made = threading.Event()

    def windows(self, item: int) -> Windows:
        if item == 2:
            self.second_is_made.set()
        return Windows((Window((item,), (0,), 0, 1),), truncated=False)


class PatientEncoder:
    """Begins the first window only when the second text has its windows."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        assert self._texts.second_is_made.wait(timeout=30)
        return np.array([[window.input_ids[0], 0] for window in windows], dtype=np.float32)


def test_windows_are_made_while_the_encoder_is_at_those_before() -> None:
    texts = Texts()
    heads = head_slices({"sign": HeadConfig(column="sign", labels=("plus", "minus"))})
    inference = ModelInference(
        texts, PatientEncoder(texts), heads, tokens_at_once=1, groups_ahead=1
    )
    inferred = inference.infer([1, 2, -3, -4])
    assert [each.answers["sign"].labels for each in inferred] == [("plus",)] * 2 + [("minus",)] * 2
