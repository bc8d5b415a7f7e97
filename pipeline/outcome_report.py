"""Published scores as a reader sees them, and how they compare with what people decided later."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.cells import id_text
from pipeline.heads import head_slices
from pipeline.model.labelled import Labeller, Target, target_matrix
from pipeline.model.metrics import head_metrics
from pipeline.publish import Partition
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.spool import temporary_spool
from pipeline.survey import find_inputs, survey
from schemas.errors import ArtifactError, DataContractError
from schemas.manifest import Effort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.bundle import HeadMetrics
    from schemas.home import Home
    from schemas.manifest import PartitionManifest
    from schemas.task import TaskConfig


@dataclass(frozen=True)
class Night:
    """One published date: its manifest, and what it cost to score it, nothing where none knows."""

    manifest: PartitionManifest
    effort: Effort


def read_night(home: Home, task: str, date: dt.date) -> Night:
    """A published date.

    Raises:
        ArtifactError: it has not been published.
    """
    partition = Partition(home, task, date)
    manifest = partition.current()
    if manifest is None:
        raise ArtifactError(
            f"{task} {date} is not published; `nightmill score {task} --date {date}` does it"
        )
    # A run may have become current a second time, without any work.
    worked = [p for p in partition.publications() if p.worker_seconds and p.run == manifest.run]
    return Night(manifest, worked[-1] if worked else Effort())


def read_scores(home: Home, manifest: PartitionManifest) -> pa.Table:
    """The scored rows of a published date, by its manifest."""
    partition = Partition(home, manifest.task, dt.date.fromisoformat(manifest.date))
    files = partition.scores_files(manifest)
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def compare_with_outcomes(
    task: TaskConfig, home: Home, manifests: Sequence[PartitionManifest]
) -> dict[str, HeadMetrics]:
    """Quality of each head on the scored rows whose outcome is known, joined by id, never by place.

    Each has that of every language beside it (`by_lang`). Empty where the task names no outcomes or
    none have arrived.
    """
    if task.data.outcomes is None:
        return {}
    targets: list[dict[str, Target]] = []
    rows: list[dict[str, Any]] = []
    for manifest in manifests:
        outcomes = _outcomes(task, home, dt.date.fromisoformat(manifest.date))
        for row in read_scores(home, manifest).to_pylist():
            if row["record_id"] in outcomes:
                rows.append(row)
                targets.append(outcomes[row["record_id"]])
    if not rows:
        return {}
    return {
        head.name: head_metrics(
            np.array([row[f"{head.name}_scores"] for row in rows], dtype=np.float64),
            target_matrix([target[head.name] for target in targets], head.config),
            head,
            seed=task.train.seed,
            langs=[row["lang"] for row in rows],
        )
        for head in head_slices(task.heads)
    }


def _outcomes(task: TaskConfig, home: Home, date: dt.date) -> Mapping[str, dict[str, Target]]:
    """Targets by record id of one date; empty where no file has arrived yet."""
    pattern, id_column = task.data.outcomes, task.data.id_column
    if pattern is None or id_column is None:
        return {}
    try:
        sources = find_inputs(pattern, home, date=date)
    except DataContractError:
        return {}
    # An outcomes file has the id and the heads' columns, and no text.
    data = task.data.model_copy(update={"text_columns": ()})
    labeller = Labeller(task.heads)
    outcomes: dict[str, dict[str, Target]] = {}
    with temporary_spool(home, task.name) as spool:
        found = survey(sources, data=data, home=home, rows_per_shard=100_000, spool=spool)
        for shard in found.shards:
            for row in read_shard(shard):
                # Of outcomes that share an id the first counts, as of records.
                if isinstance(row, Rejected) or row.repeated:
                    continue
                if name := id_text(row.values.get(id_column)):
                    outcomes[name] = labeller.read(row.values, record_id=name)
    labeller.check()
    return outcomes
