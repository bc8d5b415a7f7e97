"""Watching a job on a Ray cluster: its lease renewed, its state asked for, its log passed on."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING

from dags.operators.ray_cluster import ClusterAwayError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from dags.operators.lease import Lease
    from dags.operators.ray_cluster import Cluster, RayJob

_TAIL_AGAIN_S = 2.0
_LAST_LINES_S = 10.0
log = logging.getLogger(__name__)


class Watch:
    """Looks at one job; forgives a cluster that does not answer for less than `away_s`."""

    def __init__(
        self, cluster: Cluster, submission_id: str, *, lease: Lease, away_s: float
    ) -> None:
        self._cluster = cluster
        self._submission_id = submission_id
        self._lease = lease
        self._away_s = away_s
        self._away_since: float | None = None

    def look(self) -> RayJob | None:
        """The job, its lease renewed; None: no answer this time.

        Raises:
            ClusterAwayError: no answer for too long, or the job is unknown.
            ClusterRefusesError: the cluster will never answer this.
        """
        self._lease.renew()
        try:
            job = self._cluster.look(self._submission_id)
        except ClusterAwayError as error:
            self._away_since = self._away_since or time.monotonic()
            if time.monotonic() - self._away_since >= self._away_s:
                raise
            log.warning("%s", error)
            return None
        self._away_since = None
        if job is None:
            raise ClusterAwayError(
                f"the Ray cluster does not know job {self._submission_id} any more: its head has "
                "been started anew"
            )
        return job


def follow(
    cluster: Cluster,
    submission_id: str,
    *,
    watch: Watch,
    on_line: Callable[[str], None],
    poll_s: float,
) -> RayJob:
    """Waits for a job's end, which it returns; its log goes to `on_line` as it comes.

    Raises:
        ClusterAwayError: the cluster or the job on it is lost.
        ClusterRefusesError: the cluster will never answer this.
    """
    with LogTail(lambda: cluster.tail(submission_id)) as tail:
        while True:
            job = watch.look()
            if job is not None and job.ended:
                tail.end_with_job()
                tail.pass_on(on_line, for_s=_LAST_LINES_S)
                return job
            tail.pass_on(on_line, for_s=poll_s)


class LogTail:
    """The lines of a job's log, taken in a thread and passed on where they are wanted.

    A broken connection is made anew; what has been read before then is not passed on twice.
    """

    def __init__(self, chunks: Callable[[], AsyncIterator[str]]) -> None:
        self._chunks = chunks
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._job_ended = threading.Event()
        self._left = threading.Event()
        self._seen_characters = 0
        self._part = ""

    def __enter__(self) -> Self:
        threading.Thread(target=lambda: asyncio.run(self._read()), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._job_ended.set()

    def end_with_job(self) -> None:
        """Makes the end of the log that comes next the last one."""
        self._job_ended.set()

    def pass_on(self, on_line: Callable[[str], None], *, for_s: float) -> None:
        """Passes lines on as they come, for so long or up to the end of the log."""
        deadline = time.monotonic() + for_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                return
            if line is None:
                return
            on_line(line)

    async def _read(self) -> None:
        while not self._left.is_set():
            try:
                await self._read_once()
            except Exception as error:  # noqa: BLE001 - the job goes on without its log here
                log.debug("log of the job cannot be read: %s", error)
            if await asyncio.to_thread(self._job_ended.wait, _TAIL_AGAIN_S):
                break
        if self._part:
            self._lines.put(self._part)
        self._lines.put(None)

    async def _read_once(self) -> None:
        passed = 0
        async for chunk in self._chunks():
            new = chunk[max(0, self._seen_characters - passed) :]
            passed += len(chunk)
            self._seen_characters = max(self._seen_characters, passed)
            *lines, self._part = (self._part + new).split("\n")
            for line in lines:
                self._lines.put(line.rstrip())
            if self._left.is_set():
                return
