"""Which quarantined rows a replay takes up again, and the shards that hold them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.cells import id_text
from pipeline.plan import OUTPUT_VERSION, Plan
from pipeline.quarantined import quarantined_rows
from pipeline.read import read_shard
from pipeline.rows import RawRow
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pipeline.publish import Partition
    from schemas.manifest import PartitionManifest, Shard
    from schemas.reasons import Reason

# Row numbers by file, in order.
Rows = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class ReplayPlan:
    """A replay before it starts; equal fingerprints mean equal bytes.

    `plan` says how the whole partition would be scored now; of its shards only those with rows to
    replay are in `shards`, restricted to these.
    """

    plan: Plan
    base: PartitionManifest
    reasons: tuple[Reason, ...]
    rows: Rows
    shards: tuple[Shard, ...]

    @property
    def count(self) -> int:
        """Number of rows to replay."""
        return sum(map(len, self.rows.values()))

    @cached_property
    def fingerprint(self) -> str:
        """Hash over the run that is added to, the rows, and what is done to them."""
        return digest_of(
            {
                "base": self.base.fingerprint,
                "reasons": list(self.reasons),
                "rows": self.rows,
                "model": self.plan.model.model_dump(),
                "config": self.plan.config_digest,
                "cleaner": self.plan.cleaner_version,
                "output": OUTPUT_VERSION,
            }
        )

    @property
    def run(self) -> str:
        """Name of the run's folder, and `run_id` in the rows that are scored now."""
        return self.fingerprint[:16]


def rows_to_replay(files: Sequence[Path], reasons: Collection[Reason]) -> Rows:
    """Row numbers by file of the quarantined rows with one of the reasons; of all, without any."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in quarantined_rows(files, columns=("source_file", "source_row", "reason")):
        if not reasons or row["reason"] in reasons:
            found[row["source_file"]].append(row["source_row"])
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def plan_replay(
    plan: Plan, base: PartitionManifest, reasons: tuple[Reason, ...], *, partition: Partition
) -> ReplayPlan:
    """The replay of a published partition's quarantined rows.

    Raises:
        DataContractError: the input is not what the partition was scored from.
    """
    _check_inputs(plan, base)
    rows = rows_to_replay(partition.quarantine_files(base), reasons)
    shards = tuple(s for shard in plan.survey.shards if (s := _restricted(shard, rows)).rows_to_do)
    column = plan.task.data.id_column
    if column is not None:
        folder = partition.scores / f"run={base.run}"
        shards = _with_taken_ids(shards, column, [folder / part.name for part in base.scores])
    return ReplayPlan(plan, base, reasons, rows, shards)


def _check_inputs(plan: Plan, base: PartitionManifest) -> None:
    was = {file.name: (file.sha256, file.rows) for file in base.inputs}
    found = {file.name: (file.sha256, file.rows) for file in plan.survey.inputs}
    if was == found:
        return
    names = sorted(name for name in was.keys() | found.keys() if was.get(name) != found.get(name))
    task, date = plan.task.name, plan.date
    raise DataContractError(
        f"{task} {date}: the input is not what run {base.run} was scored from ({len(names)} files "
        f"differ, such as {', '.join(names[:3])}); `nightmill score {task} --date {date}` scores it"
    )


def _restricted(shard: Shard, rows: Mapping[str, tuple[int, ...]]) -> Shard:
    stop = shard.first_row + shard.rows
    only = tuple(row for row in rows.get(shard.name, ()) if shard.first_row <= row < stop)
    return shard.model_copy(update={"only_rows": only})


def _with_taken_ids(
    shards: Sequence[Shard], column: str, scores: Sequence[Path]
) -> tuple[Shard, ...]:
    """The shards with rows in `repeats` whose id is that of a scored row.

    The survey knows the first row with an id. It may be one that could not be read before, and a
    later row has been scored under the id since: then that one keeps it.
    """
    ids = {shard.index: _ids(shard, column) for shard in shards}
    wanted = pa.array(sorted({name for names in ids.values() for name in names}), pa.string())
    taken: set[str] = set()
    for file in scores:
        found = pq.read_table(file, columns=["record_id"])["record_id"]
        taken |= set(found.filter(pc.is_in(found, value_set=wanted)).to_pylist())
    clashes = {
        shard.index: {row for name, row in ids[shard.index].items() if name in taken}
        for shard in shards
    }
    return tuple(_with_repeats(shard, column, clashes[shard.index]) for shard in shards)


def _ids(shard: Shard, column: str) -> dict[str, int]:
    """Row numbers by id of the rows of a shard that can be read; the first row has an id."""
    ids: dict[str, int] = {}
    for row in read_shard(shard):
        if isinstance(row, RawRow) and (name := id_text(row.values.get(column))) is not None:
            ids.setdefault(name, row.source_row)
    return ids


def _with_repeats(shard: Shard, column: str, rows: set[int]) -> Shard:
    if not rows:
        return shard
    repeated = tuple(sorted(rows | {*shard.repeats.get(column, ())}))
    return shard.model_copy(update={"repeats": {**shard.repeats, column: repeated}})
