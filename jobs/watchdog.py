"""A source that may fall silent for ever, and a wait for it that does not."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from schemas.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
_LOOKS_PER_TIMEOUT = 10
_LONGEST_WAIT_S = 1.0


def no_check() -> None:
    """Finds nothing wrong."""


def watched(
    items: Iterable[T],
    *,
    timeout_s: float,
    signs_of_life: Callable[[], dict[str, int]],
    check: Callable[[], None] = no_check,
) -> Iterator[T]:
    """The items as they come; `signs_of_life` tells by any change that work goes on without one.

    `check` is asked about every second while none comes, and may raise what it finds. The items
    are taken in a thread of their own, which is left to itself where they fall silent.

    Raises:
        ShardError: neither an item nor a sign of life came for `timeout_s`; it names what was
            begun and did not end.
    """
    arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(items, arrived), daemon=True).start()
    signs, last = signs_of_life(), time.monotonic()
    while True:
        try:
            kind, value = arrived.get(timeout=min(timeout_s / _LOOKS_PER_TIMEOUT, _LONGEST_WAIT_S))
        except queue.Empty:
            check()
            if (now := signs_of_life()) != signs:
                signs, last = now, time.monotonic()
            elif time.monotonic() - last >= timeout_s:
                raise ShardError(_silence(timeout_s, signs)) from None
            continue
        if kind == "end":
            return
        if kind == "error":
            raise value
        last = time.monotonic()
        yield value


def _take(items: Iterable[Any], arrived: queue.SimpleQueue[tuple[str, Any]]) -> None:
    try:
        for item in items:
            arrived.put(("item", item))
    except BaseException as error:  # noqa: BLE001 - raised again where the items are waited for
        arrived.put(("error", error))
    else:
        arrived.put(("end", None))


def _silence(timeout_s: float, signs: dict[str, int]) -> str:
    begun = f"begun and not done: {', '.join(sorted(signs)[:10])}" if signs else "none was begun"
    return (
        f"no shard was done for {timeout_s:.0f} s (score.no_progress_timeout_s; {begun}); finished "
        f"shards are kept, run again"
    )
