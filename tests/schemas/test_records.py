"""Arrow schemas of what is written, field by field."""

from __future__ import annotations

import pyarrow as pa

from schemas.records import quarantine_schema, scores_schema
from schemas.task import HeadConfig


def test_scores_have_four_columns_a_head_and_the_lineage() -> None:
    heads = {
        "queue": HeadConfig(column="queue", labels=("a", "b")),
        "topics": HeadConfig(kind="multi", column="topics", labels=("c", "d")),
    }
    schema = scores_schema(heads)
    assert schema.names == [
        "record_id", "queue", "queue_confidence", "queue_scores", "queue_window",
        "topics", "topics_confidence", "topics_scores", "topics_window",
        "decision", "lang", "n_windows", "spans", "truncated", "flags", "text_hash",
        "source_file", "source_row", "partition_date",
        "model_name", "model_version", "model_digest", "cleaner_version", "run_id",
    ]  # fmt: skip
    assert schema.field("queue").type == pa.string()
    assert schema.field("topics").type == pa.list_(pa.string())
    assert schema.field("topics_scores").type == pa.list_(pa.float32())
    assert schema.field("topics_window").type == pa.int32()
    span = pa.struct([("start", pa.int32()), ("end", pa.int32())])
    assert schema.field("spans").type == pa.list_(span)
    assert not any(field.nullable for field in schema)


def test_quarantine_keeps_raw_bytes_where_the_policy_does_and_always_their_hash() -> None:
    schema = quarantine_schema()
    assert schema.names == [
        "record_id", "source_file", "source_row", "stage", "reason", "detail", "raw",
        "raw_sha256", "raw_bytes", "contract_version",
    ]  # fmt: skip
    assert schema.field("raw").type == pa.binary()
    assert schema.field("raw_bytes").type == pa.int64()
    assert [field.name for field in schema if field.nullable] == ["record_id", "raw"]
