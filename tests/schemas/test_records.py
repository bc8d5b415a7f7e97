"""Arrow schemas of what is written, field by field."""

from __future__ import annotations

import pyarrow as pa

from schemas.head import HeadConfig, OutsideConfig
from schemas.records import quarantine_schema, scores_schema


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


def test_a_head_with_texts_outside_has_two_columns_more() -> None:
    plain = HeadConfig(column="queue", labels=("a", "b"))
    asked = plain.model_copy(update={"outside": OutsideConfig()})
    before, schema = scores_schema({"queue": plain}), scores_schema({"queue": asked})
    place = schema.names.index("queue_scope")
    assert schema.names[place - 1 : place + 3] == [
        "queue_window", "queue_scope", "queue_outside", "decision",
    ]  # fmt: skip
    assert schema.field("queue_scope").type == pa.float32()
    assert schema.field("queue_scope").nullable
    assert schema.field("queue_outside").type == pa.bool_()
    assert not schema.field("queue_outside").nullable
    assert [name for name in schema.names if "scope" not in name and "outside" not in name] == (
        before.names
    )
