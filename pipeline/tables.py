"""Scored and rejected rows as Arrow tables of the declared schemas."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from schemas.records import quarantine_schema, scores_schema

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from pipeline.flow import Scored
    from pipeline.rows import Rejected
    from schemas.manifest import ModelRef
    from schemas.task import HeadConfig, QuarantineConfig


@dataclass(frozen=True)
class Lineage:
    """What every row of a run has in common."""

    partition_date: dt.date
    model: ModelRef
    cleaner_version: str
    run_id: str


def scores_table(
    rows: Sequence[Scored], heads: Mapping[str, HeadConfig], lineage: Lineage
) -> pa.Table:
    """Scored rows in the order given, one column for each field of the scores schema."""
    columns: dict[str, Any] = {"record_id": [row.prepared.record.record_id for row in rows]}
    models = [row.model or lineage.model for row in rows]  # of a cascade either one may answer
    for name, head in heads.items():
        answers = [row.answers[name] for row in rows]
        single = head.kind == "single"
        columns[name] = [a.labels[0] if single else list(a.labels) for a in answers]
        columns[f"{name}_confidence"] = np.array([a.confidence for a in answers], np.float32)
        columns[f"{name}_scores"] = [a.scores.astype(np.float32) for a in answers]
        columns[f"{name}_window"] = np.array([a.window for a in answers], np.int32)
        if head.outside is not None:
            columns[f"{name}_scope"] = [a.scope for a in answers]
            columns[f"{name}_outside"] = [a.outside for a in answers]
    columns |= {
        "decision": [row.decision for row in rows],
        "lang": [row.prepared.lang for row in rows],
        "n_windows": [len(row.spans) for row in rows],
        "spans": [[{"start": start, "end": end} for start, end in row.spans] for row in rows],
        "truncated": [row.truncated for row in rows],
        "flags": [list(row.prepared.flags) for row in rows],
        "text_hash": [row.prepared.text_hash for row in rows],
        "source_file": [row.prepared.record.source_file for row in rows],
        "source_row": [row.prepared.record.source_row for row in rows],
        "partition_date": [lineage.partition_date] * len(rows),
        "model_name": [model.name for model in models],
        "model_version": [model.version for model in models],
        "model_digest": [model.digest for model in models],
        "cleaner_version": [lineage.cleaner_version] * len(rows),
        "run_id": [lineage.run_id] * len(rows),
    }
    return _table(columns, scores_schema(heads))


def quarantine_table(
    rows: Sequence[Rejected], *, policy: QuarantineConfig, contract_version: str
) -> pa.Table:
    """Rejected rows in the order given; the policy says how much of a row's bytes is kept."""
    keeps = policy.raw == "bytes"
    columns = {
        "record_id": [row.record_id for row in rows],
        "source_file": [row.source_file for row in rows],
        "source_row": [row.source_row for row in rows],
        # Enum members are strings; Arrow wants exactly str.
        "stage": [str(row.stage) for row in rows],
        "reason": [str(row.reason) for row in rows],
        "detail": [row.detail for row in rows],
        "raw": [row.raw[: policy.max_raw_bytes] if keeps else None for row in rows],
        "raw_sha256": [row.raw_sha256 or hashlib.sha256(row.raw).hexdigest() for row in rows],
        "raw_bytes": [len(row.raw) if row.raw_bytes is None else row.raw_bytes for row in rows],
        "contract_version": [contract_version] * len(rows),
    }
    return _table(columns, quarantine_schema())


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.table(
        [pa.array(columns[field.name], type=field.type) for field in schema], schema=schema
    )
