"""The asset of a task's published scores, and what its events say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from schemas.manifest import PartitionManifest

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTS = ("rows_read", "rows_scored", "rows_quarantined", "rows_to_review")


def scores_asset(task: str) -> Asset:
    """The asset that a task's nights update, with its address for a name too.

    A DAG that waits for it writes `Asset("x-nightmill://scores/TASK")`: Airflow takes assets for
    the same only where name and address are. `x-` is the prefix of schemes of one's own.
    """
    return Asset(f"x-nightmill://scores/{task}", group="scores")


def event_extra(scored: Mapping[str, Any]) -> dict[str, Any]:
    """What an event says of the dates a run has published, as their manifests stand now.

    The sums of `COUNTS` over all dates and, of the last date, `date`, `run`, `manifest`, `model`,
    `model_version` and `model_digest`; `first` is the first date and `partitions` has the same of
    each. `scored` is the result of the job `score`.

    Raises:
        ArtifactError: a manifest is missing or cannot be read.
    """
    manifests = [
        (path, PartitionManifest.read(Path(path)))
        for path in (each["manifest"] for each in scored["partitions"].values())
    ]
    partitions = [_of_partition(manifest, path) for path, manifest in manifests]
    totals = {name: sum(each[name] for each in partitions) for name in COUNTS}
    return {
        **partitions[-1],
        **totals,
        "first": partitions[0]["date"],
        "partitions": partitions,
    }


def _of_partition(manifest: PartitionManifest, path: str) -> dict[str, Any]:
    counters = manifest.counters
    return {
        "task": manifest.task,
        "date": manifest.date,
        "run": manifest.run,
        "manifest": path,
        "model": manifest.model.name,
        "model_version": manifest.model.version,
        "model_digest": manifest.model.digest,
        **{name: getattr(counters, name) for name in COUNTS},
    }
