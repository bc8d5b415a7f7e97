"""Work done ahead: one thread prepares what comes next while the caller is busy with this."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class _End:
    """The last thing in the queue: how the source ended."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(source: Iterable[T], *, depth: int = 2) -> Iterator[T]:
    """The items of `source` in order, up to `depth` of them made before they are asked for.

    What the source raises is raised here, after the items before it. When the caller stops early,
    the thread ends after the item it is at. Only the thread ever touches `source`.
    """
    items: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_fill, args=(source, items, stopped), name="nightmill-ahead", daemon=True
    )
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        _make_room(items)
        thread.join()


def _fill(source: Iterable[T], items: queue.Queue[T | _End], stopped: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in source:
            items.put(item)
            if stopped.is_set():
                return
    except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller has to see it
        error = raised
    items.put(_End(error))


def _make_room(items: queue.Queue[T | _End]) -> None:
    """Frees a thread that waits to put something into a full queue."""
    while True:
        try:
            items.get_nowait()
        except queue.Empty:
            return
