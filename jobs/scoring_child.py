"""A process that scores in a worker's place, and may die of what it scores."""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import TYPE_CHECKING, Any

from jobs.memory_limit import end_process, memory_limit
from pipeline.flow import Outcome
from pipeline.read import read_shard
from schemas.errors import ShardError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from pipeline.flow import ScoringFlow
    from schemas.manifest import Shard
    from schemas.task import ScoreConfig

# Spawned, not forked: a tokenizer that has been used blocks for ever in a fork.
_PROCESSES = multiprocessing.get_context("spawn")


class ChildEnded(Exception):
    """The child died, or gave no answer in time."""


class ScoringChild:
    """The process; it is started when it is first asked, and again where it died."""

    def __init__(self, build: Callable[[], ScoringFlow], score: ScoreConfig) -> None:
        self._build, self._max_mib = build, score.max_worker_mib
        # Twice in the time that the driver waits for a sign of life.
        self._timeout_s = score.no_progress_timeout_s / 2
        self._process: Any = None
        self._connection: Connection | None = None

    def score(self, shard: Shard, date: dt.date) -> Outcome:
        """What becomes of a shard.

        Raises:
            ChildEnded: the process died of it, or hung.
            ShardError: the process cannot start, or scoring failed in good order.
        """
        connection = self._connection or self._start()
        try:
            connection.send((shard, date))
            answer = self._answer(connection)
        except (EOFError, ConnectionError):
            self._process.join()
            exit_code = self._process.exitcode
            self.close()
            raise ChildEnded(f"ended with exit code {exit_code}") from None
        if isinstance(answer, Outcome):
            return answer
        raise ShardError(f"shard {shard.index}: {answer}")

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = self._connection = None

    def _start(self) -> Connection:
        here, there = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(
            target=serve, args=(there, self._build, self._max_mib), daemon=True
        )
        self._process.start()
        there.close()  # the child's end is then the only one, and its death is seen
        try:
            trouble = self._answer(here)
        except (EOFError, ConnectionError, ChildEnded):
            trouble = "its process ended; mend the bundle, or raise score.max_worker_mib"
        if trouble:
            raise ShardError(f"the model cannot be loaded: {trouble}")
        self._connection = here
        return here

    def _answer(self, connection: Connection) -> Any:
        if connection.poll(self._timeout_s):
            return connection.recv()
        self.close()
        raise ChildEnded(f"gave no answer for {self._timeout_s:.0f} s")


def serve(connection: Connection, build: Callable[[], ScoringFlow], max_mib: int | None) -> None:
    """Scores what comes through the connection, until it closes or the parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with memory_limit(max_mib):
        try:
            flow = build()
        except Exception as error:  # noqa: BLE001 - told to the parent
            connection.send(f"{type(error).__name__}: {error}")
            return
        connection.send("")
        while True:
            try:
                shard, date = connection.recv()
            except EOFError:
                return
            connection.send(_outcome(flow, shard, date))


def _outcome(flow: ScoringFlow, shard: Shard, date: dt.date) -> Outcome | str:
    try:
        return flow.score(read_shard(shard), date=date)
    except MemoryError:
        end_process()
        raise
    except Exception as error:  # noqa: BLE001 - told to the parent
        return f"{type(error).__name__}: {error}"


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
