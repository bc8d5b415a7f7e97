"""Silence ends a wait, and anything but silence does not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jobs.watchdog import watched
from schemas.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_SIGNS: dict[str, int] = {}


def test_items_come_through_in_their_order() -> None:
    items = watched(range(100), timeout_s=60, signs_of_life=lambda: NO_SIGNS)
    assert list(items) == list(range(100))


def test_an_error_comes_through_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ConnectionError("lost")

    items = watched(source(), timeout_s=60, signs_of_life=lambda: NO_SIGNS)
    assert next(items) == 1
    with pytest.raises(ConnectionError, match=r"^lost$"):
        next(items)


@pytest.mark.parametrize(
    ("signs", "what"),
    [
        ({"shard 00003": 6, "shard 00001": 6}, "begun and not done: shard 00001, shard 00003"),
        ({}, "none was begun"),
    ],
)
def test_failure_02_04_silence_fails_with_what_was_begun(signs: dict[str, int], what: str) -> None:
    """Actors that are gone without an exception, or never come to be: no more items, no error."""
    silent = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        silent.wait()

    items = watched(source(), timeout_s=0.2, signs_of_life=lambda: signs)
    assert next(items) == 1
    with pytest.raises(ShardError, match=rf"^no shard was done for 0 s .*; {what}\); finished"):
        next(items)
    silent.set()


def test_signs_of_life_prolong_the_wait() -> None:
    """The item comes only after more looks than a silent source is given."""
    looks = iter(range(1000))
    enough = threading.Event()

    def signs() -> dict[str, int]:
        look = next(looks)
        if look == 40:  # ten are one timeout
            enough.set()
        return {"shard 00000": look}

    def source() -> Iterator[int]:
        enough.wait()
        yield 7

    assert list(watched(source(), timeout_s=0.1, signs_of_life=signs)) == [7]


def test_what_a_check_finds_ends_the_wait_at_once() -> None:
    silent = threading.Event()

    def source() -> Iterator[int]:
        silent.wait()
        yield 1

    def check() -> None:
        raise ShardError("the node died")

    items = watched(source(), timeout_s=2, signs_of_life=lambda: NO_SIGNS, check=check)
    with pytest.raises(ShardError, match=r"^the node died$"):
        next(items)
    silent.set()
