"""One task's job on a Ray cluster: never two beside each other, joined where it is alive."""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import time
from typing import TYPE_CHECKING

from dags.operators.lease import Lease
from dags.operators.ray_cluster import (
    GENERATION,
    ClusterAwayError,
    ClusterRefusesError,
    Order,
    RayJob,
)
from dags.operators.submission import (
    LEASE_SECONDS_VARIABLE,
    LEASE_VARIABLE,
    environment_of,
    folder_of,
)
from dags.operators.watch import Watch, follow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dags.operators.ray_cluster import Cluster
    from dags.operators.submission import Identity, RayOptions
    from schemas.home import Home

ACTIVE, SUCCEEDED, OVER = "ACTIVE", "SUCCEEDED", "OVER"
_STOP_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.5
log = logging.getLogger(__name__)


class RemoteJob:
    """The job of one try of a task. `command` makes its command line for a result file."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: Identity,
        home: Home,
        command: Callable[[Path], list[str]],
        options: RayOptions,
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._home = home
        self._command = command
        self._options = options
        self._first = 1
        self._current: str | None = None

    def result_file(self, submission_id: str) -> Path:
        """Where a job leaves its result."""
        return folder_of(self._home, submission_id) / "result.json"

    def lease(self, submission_id: str) -> Lease:
        """A job's lease, as this try writes it."""
        return Lease(
            folder_of(self._home, submission_id) / "lease.json",
            owner=self._identity.owner,
            lease_s=self._options.lease_s,
        )

    def status(self, submission_id: str) -> str:
        """`ACTIVE`: join it; `SUCCEEDED`: its result is this task's; `OVER`: another is needed.

        Raises:
            ClusterAwayError: the cluster does not answer.
            ClusterRefusesError: the cluster will never answer this.
        """
        job = self._cluster.look(submission_id)
        if job is None:
            # A cluster that was started anew has forgotten it. Its id is not used again, so that
            # a process which outlived the old cluster does not take the new job's lease for its.
            self._first = self._identity.number_of(submission_id) + 1
            return OVER
        return self._status_of(job, submission_id)

    def submit(self) -> str:
        """The id of the task's job: one that is alive or has succeeded, else a new one's.

        Raises:
            ClusterAwayError: the cluster does not answer, or a job that was told to stop still
                runs.
            ClusterRefusesError: the cluster does not take the job.
        """
        for number in itertools.count(self._first):
            submission_id = self._identity.submission_id(number)
            job = self._cluster.look(submission_id) or self._start(submission_id)
            if job is None or self._status_of(job, submission_id) != OVER:
                return submission_id
            if not job.ended:
                self._end(submission_id)
        raise AssertionError("the numbers do not end")

    def follow(self, submission_id: str, on_line: Callable[[str], None]) -> RayJob:
        """Waits for a job's end, as its owner.

        Raises:
            ClusterAwayError: the cluster or the job on it is lost.
            ClusterRefusesError: the cluster will never answer this.
        """
        lease = self.hold(submission_id)
        watch = Watch(self._cluster, submission_id, lease=lease, away_s=self._options.away_s)
        poll_s = self._options.poll_s
        return follow(self._cluster, submission_id, watch=watch, on_line=on_line, poll_s=poll_s)

    def hold(self, submission_id: str) -> Lease:
        """Takes a job's lease; from now on `stop` means this job."""
        lease = self.lease(submission_id)
        self._current = submission_id
        lease.take()
        return lease

    def stop(self) -> None:
        """Ends the job, where there is one and no later try has joined it."""
        if self._current is not None:
            stop_job(self._cluster, self._current, lease=self.lease(self._current))

    def _status_of(self, job: RayJob, submission_id: str) -> str:
        if job.entrypoint != self._entrypoint(submission_id):
            return OVER  # the task was given other arguments since
        if not job.ended:
            return OVER if self.lease(submission_id).is_ended() else ACTIVE
        mine = job.status == "SUCCEEDED" and job.generation == self._identity.generation
        return SUCCEEDED if mine else OVER

    def _start(self, submission_id: str) -> RayJob | None:
        """Submits a job; answers the one that took the id in the meantime, if one did."""
        self.hold(submission_id)
        try:
            self._cluster.submit(self._order(submission_id))
        except (ClusterAwayError, ClusterRefusesError):
            # Another process was faster, or the answer was lost on the way back.
            if (job := self._cluster.look(submission_id)) is None:
                raise
            return job
        return None

    def _order(self, submission_id: str) -> Order:
        options = self._options
        environment, kept_back = environment_of(os.environ, more=options.environment)
        if kept_back:
            log.warning(
                "not sent to Ray, whose users would see them: %s; set them on the cluster's nodes",
                ", ".join(sorted(kept_back)),
            )
        return Order(
            submission_id=submission_id,
            entrypoint=self._entrypoint(submission_id),
            environment={
                **environment,
                "NIGHTMILL_LOG_FORMAT": "text",
                LEASE_VARIABLE: str(self.lease(submission_id).file),
                LEASE_SECONDS_VARIABLE: f"{options.lease_s:g}",
            },
            metadata={**self._identity.labels, GENERATION: self._identity.generation},
            num_cpus=options.num_cpus,
            memory_bytes=options.memory_bytes,
            resources=options.resources,
        )

    def _entrypoint(self, submission_id: str) -> str:
        # Without exec a shell stands between, which hides the signal that killed the job.
        return f"exec {shlex.join(self._command(self.result_file(submission_id)))}"

    def _end(self, submission_id: str) -> None:
        """Stops a job that is not to be joined, and waits until it has ended."""
        log.warning("job %s still runs and cannot be joined: stopping it", submission_id)
        self.lease(submission_id).end()
        self._cluster.stop(submission_id)
        deadline = time.monotonic() + _STOP_WITHIN_S
        while (job := self._cluster.look(submission_id)) is not None and not job.ended:
            if time.monotonic() >= deadline:
                raise ClusterAwayError(
                    f"job {submission_id} was told to stop and still runs after "
                    f"{_STOP_WITHIN_S:.0f} s; a second one is not started beside it"
                )
            time.sleep(_LOOK_EVERY_S)


def stop_job(cluster: Cluster, submission_id: str, *, lease: Lease) -> None:
    """Ends a job that nobody else has joined; where that fails, its lease will end it."""
    if not lease.is_own():
        log.info("job %s goes on: a later try has joined it", submission_id)
        return
    try:
        lease.end()
        cluster.stop(submission_id)
    except (ClusterAwayError, ClusterRefusesError, OSError) as error:
        log.warning("%s; the job ends when its lease lapses, in %.0f s", error, lease.lease_s)
