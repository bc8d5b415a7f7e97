"""What waits for a job on a Ray cluster while its task holds no worker."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from dags.operators.lease import Lease
from dags.operators.ray_address import find_again
from dags.operators.ray_cluster import ClusterAwayError, ClusterRefusesError, RayCluster
from dags.operators.remote import stop_job
from dags.operators.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RayJobTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires when a job has ended or is lost; renews its lease until then.

    A triggerer that is stopped leaves the job alone, as another one goes on with it. A person who
    clears or marks the task stops the job.
    """

    def __init__(
        self,
        *,
        address: str,
        submission_id: str,
        lease_file: str,
        owner: str,
        lease_s: float,
        poll_s: float,
        away_s: float,
    ) -> None:
        super().__init__()
        self.address = address
        self.submission_id = submission_id
        self.poll_s = poll_s
        self.away_s = away_s
        self.lease = Lease(Path(lease_file), owner=owner, lease_s=lease_s)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and what makes another one like this; nothing secret, as viewers see it."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "address": self.address,
            "submission_id": self.submission_id,
            "lease_file": str(self.lease.file),
            "owner": self.lease.owner,
            "lease_s": self.lease.lease_s,
            "poll_s": self.poll_s,
            "away_s": self.away_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: the job that has ended as `job`, or what went wrong as `lost` or `refused`."""
        event = {"submission_id": self.submission_id}
        try:
            yield TriggerEvent({**event, "job": await self._ended()})
        except ClusterAwayError as error:
            yield TriggerEvent({**event, "lost": str(error)})
        except ClusterRefusesError as error:
            yield TriggerEvent({**event, "refused": str(error)})

    async def on_kill(self) -> None:
        """Ends the job: a person has cleared the task, or marked it."""
        cluster = RayCluster(await find_again(self.address))
        await asyncio.to_thread(stop_job, cluster, self.submission_id, lease=self.lease)

    async def _ended(self) -> dict[str, Any]:
        cluster = RayCluster(await find_again(self.address))
        watch = Watch(cluster, self.submission_id, lease=self.lease, away_s=self.away_s)
        while True:
            job = await asyncio.to_thread(watch.look)
            if job is not None and job.ended:
                return asdict(job)
            await asyncio.sleep(self.poll_s)
