"""Arrow schemas of what is written, field by field."""

from __future__ import annotations

import pyarrow as pa

from schemas.records import quarantine_schema, scores_schema
from schemas.task import HeadConfig


def test_scores_have_three_columns_a_head_and_the_lineage() -> None:
    heads = {
        "queue": HeadConfig(column="queue", labels=("a", "b")),
        "topics": HeadConfig(kind="multi", column="topics", labels=("c", "d")),
    }
    schema = scores_schema(heads)
    assert schema.names == [
        "record_id", "queue", "queue_confidence", "queue_scores",
        "topics", "topics_confidence", "topics_scores",
        "decision", "lang", "n_windows", "truncated", "flags", "text_hash",
        "source_file", "source_row", "partition_date",
        "model_name", "model_version", "model_digest", "cleaner_version", "run_id",
    ]  # fmt: skip
    assert schema.field("queue").type == pa.string()
    assert schema.field("topics").type == pa.list_(pa.string())
    assert schema.field("topics_scores").type == pa.list_(pa.float32())
    assert not any(field.nullable for field in schema)


def test_quarantine_keeps_the_raw_bytes() -> None:
    schema = quarantine_schema()
    assert schema.names == [
        "record_id", "source_file", "source_row", "stage", "reason", "detail", "raw",
    ]  # fmt: skip
    assert schema.field("raw").type == pa.binary()
    assert [field.name for field in schema if field.nullable] == ["record_id"]
