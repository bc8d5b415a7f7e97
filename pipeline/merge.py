"""Replayed rows merged into a published partition: scored ones added, the others left as they are.

The files of the run before are linked, not written again, so their bytes cannot change.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.flow import check_conservation
from pipeline.quarantined import QuarantinedRow, quarantined_rows
from pipeline.staging import Staging, link_part, write_parquet
from schemas.errors import ArtifactError, ShardError
from schemas.manifest import Counters, Replay, sync_folder
from schemas.records import quarantine_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pipeline.publish import Partition
    from pipeline.replay import ReplayPlan
    from schemas.manifest import PartFile, PartitionManifest, ShardManifest


@dataclass(frozen=True)
class Replayed:
    """What the workers made of a replay's shards; `counters` are of the replayed rows alone."""

    staging: Staging
    shards: dict[int, ShardManifest]
    counters: Counters


def merge(replay: ReplayPlan, replayed: Replayed, *, partition: Partition) -> PartitionManifest:
    """Stages the whole partition as it is with what was scored now; answers its manifest.

    Raises:
        ArtifactError: the published files have other columns than are written now.
        ShardError: a row would be lost or doubled, which is a bug of ours.
    """
    target = partition.staging(replay.run)
    for folder in (target.scores, target.quarantine):  # of a merge that died
        shutil.rmtree(folder, ignore_errors=True)
    base = replay.base
    _check_columns(replay, replayed, partition=partition)
    scores = (
        *_linked(base, partition.scores / f"run={base.run}", target.scores),
        *_added(replay, replayed, target.scores),
    )
    quarantine = tuple(_quarantine(replay, replayed, target.quarantine, partition=partition))
    for folder in (target.scores, target.quarantine):
        sync_folder(folder)
    counters = _merged_counters(replay, replayed, target.rejected())
    _check_counts(counters, scores, quarantine, what=f"{partition.task} {partition.date}")
    return base.model_copy(
        update={
            "run": replay.run, "fingerprint": replay.fingerprint, "counters": counters,
            "scores": scores, "quarantine": quarantine,
            "replays": (*base.replays, _provenance(replay, replayed)),
        }
    )  # fmt: skip


def _check_columns(replay: ReplayPlan, replayed: Replayed, *, partition: Partition) -> None:
    """Makes sure that one reader can read the files of the run before and those of now."""
    name = f"run={replay.base.run}"
    shard = next(iter(replayed.shards.values()))
    for published, parts, now in (
        (partition.scores, replay.base.scores, replayed.staging.scores / shard.scores.name),
        (partition.quarantine, replay.base.quarantine,
         replayed.staging.quarantine / shard.quarantine.name),
    ):  # fmt: skip
        was = published / name / parts[0].name
        if not pq.read_schema(was).equals(pq.read_schema(now)):
            raise ArtifactError(
                f"{was} has other columns than are written now; `nightmill score {partition.task} "
                f"--date {partition.date}` writes the whole date anew"
            )


def _linked(base: PartitionManifest, published: Path, target: Path) -> Iterator[PartFile]:
    for part in base.scores:
        yield link_part(published / part.name, target / part.name, part)


def _added(replay: ReplayPlan, replayed: Replayed, target: Path) -> Iterator[PartFile]:
    for index, shard in sorted(replayed.shards.items()):
        if shard.scores.rows:
            name = f"replay-{replay.run[:8]}-{index:05d}.parquet"
            source = replayed.staging.scores / shard.scores.name
            yield link_part(source, target / name, shard.scores)


def _quarantine(
    replay: ReplayPlan, replayed: Replayed, target: Path, *, partition: Partition
) -> Iterator[PartFile]:
    """The files of the run before, without the rows scored now, with the others' new reasons."""
    taken_up = {(name, row) for name, rows in replay.rows.items() for row in rows}
    staged = [replayed.staging.quarantine / s.quarantine.name for s in replayed.shards.values()]
    still_rejected = {_place(row): row for row in quarantined_rows(staged)}
    files = partition.quarantine_files(replay.base)
    for part, path in zip(replay.base.quarantine, files, strict=True):
        linked = link_part(path, target / part.name, part)
        rows = list(quarantined_rows([path]))
        if taken_up.isdisjoint(map(_place, rows)):
            yield linked
            continue
        now = [still_rejected.get(_place(r)) if _place(r) in taken_up else r for r in rows]
        table = pa.Table.from_pylist([row for row in now if row], schema=quarantine_schema())
        yield write_parquet(table, target / part.name)


def _place(row: QuarantinedRow) -> tuple[str, int]:
    return row["source_file"], row["source_row"]


def _merged_counters(
    replay: ReplayPlan, replayed: Replayed, quarantine: Iterable[Path]
) -> Counters:
    """Rows stand where they are now; the work done on them, like windows, adds up."""
    base, now = replay.base.counters, replayed.counters
    by_reason = Counter(row["reason"] for row in quarantined_rows(quarantine, columns=("reason",)))
    return (base + now).model_copy(
        update={
            "rows_read": base.rows_read,
            "rows_quarantined": base.rows_quarantined - now.rows_scored,
            "quarantined_by_reason": dict(sorted(by_reason.items())),
        }
    )


def _check_counts(
    counters: Counters, scores: Iterable[PartFile], quarantine: Iterable[PartFile], *, what: str
) -> None:
    check_conservation(counters, what=what)
    written = (sum(part.rows for part in scores), sum(part.rows for part in quarantine))
    if written != (counters.rows_scored, counters.rows_quarantined):
        raise ShardError(
            f"{what}: {counters.rows_scored} + {counters.rows_quarantined} rows expected after "
            f"the replay, {written[0]} + {written[1]} written"
        )


def _provenance(replay: ReplayPlan, replayed: Replayed) -> Replay:
    return Replay(
        base=replay.base.run,
        reasons=replay.reasons,
        rows_replayed=replay.count,
        rows_scored=replayed.counters.rows_scored,
        config_digest=replay.plan.config_digest,
        contract_version=replay.plan.task.contract_version,
    )
