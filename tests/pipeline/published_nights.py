"""Nights published without a model, for what comes after publication."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.publish import Partition
from pipeline.tables import quarantine_table
from schemas.fingerprint import digest_of
from schemas.manifest import Counters, ModelRef, PartitionManifest, Shard
from schemas.records import scores_schema
from schemas.task import QuarantineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.home import Home
    from schemas.task import TaskConfig

DATE = dt.date(2026, 11, 28)
ROWS_PER_SHARD = 2


def publish_rows(
    home: Home,
    task: TaskConfig,
    labels: Mapping[str, str],
    *,
    date: dt.date = DATE,
    keep_runs: int = 1,
) -> PartitionManifest:
    """Publishes record ids with the label of the head `queue`, some rows a file."""
    partition = Partition(home, task.name, date)
    fingerprint = digest_of([dict(labels), date.isoformat()])
    run = fingerprint[:16]
    ids = list(labels)
    done = []
    for index, start in enumerate(range(0, max(len(ids), 1), ROWS_PER_SHARD)):
        some = ids[start : start + ROWS_PER_SHARD]
        rows = [_row(task, name, labels[name], date=date, run=run) for name in some]
        done.append(
            partition.staging(run).write(
                _shard(index, len(some)),
                scores=pa.Table.from_pylist(rows, schema=scores_schema(task.heads)),
                quarantine=quarantine_table([], policy=QuarantineConfig(), contract_version="c"),
                counters=Counters(rows_read=len(some), rows_scored=len(some)),
            )
        )
    manifest = PartitionManifest(
        task=task.name, date=date.isoformat(), run=run, fingerprint=fingerprint,
        model=ModelRef(name="tiny", version="1", digest="d"), config_digest="c",
        cleaner_version="1-c", inputs=(),
        counters=sum((shard.counters for shard in done), start=Counters()),
        scores=tuple(shard.scores for shard in done),
        quarantine=tuple(shard.quarantine for shard in done),
    )  # fmt: skip
    partition.publish(manifest, keep_runs=keep_runs)
    return manifest


def _shard(index: int, rows: int) -> Shard:
    return Shard(
        index=index, name="a.csv", path="a.csv", format="csv", start=index, stop=index + 1,
        first_row=index * ROWS_PER_SHARD, rows=rows,
    )  # fmt: skip


def _row(
    task: TaskConfig, name: str, label: str, *, date: dt.date, run: str
) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "record_id": name, "decision": "auto", "lang": "en", "n_windows": 1,
        "spans": [{"start": 0, "end": 4}], "truncated": False, "flags": [], "text_hash": "0" * 32,
        "source_file": "a.csv", "source_row": 0, "partition_date": date, "model_name": "tiny",
        "model_version": "1", "model_digest": "d", "cleaner_version": "1-c", "run_id": run,
    }  # fmt: skip
    for head, config in task.heads.items():
        labels: str | Sequence[str] = label if config.kind == "single" else []
        row |= {
            head: labels, f"{head}_confidence": 0.5, f"{head}_scores": [0.5] * len(config.labels),
            f"{head}_window": 0,
        }  # fmt: skip
    return row
