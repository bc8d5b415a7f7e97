"""Scored and rejected rows as Arrow tables of exactly the declared schemas."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.flow import Prepared, Scored
from pipeline.heads import Answer
from pipeline.rows import Record, Rejected
from pipeline.tables import Lineage, quarantine_table, scores_table
from schemas.head import OutsideConfig
from schemas.manifest import ModelRef
from schemas.reasons import Reason, Stage
from schemas.records import quarantine_schema, scores_schema
from schemas.task import HeadConfig, QuarantineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HEADS = {
    "queue": HeadConfig(column="queue", labels=("a", "b")),
    "topics": HeadConfig(kind="multi", column="topics", labels=("x", "y")),
}
LINEAGE = Lineage(dt.date(2026, 11, 28), ModelRef(name="m", version="3", digest="d"), "1-c", "run")


def scored(
    name: str, row: int, *, topics: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> Scored:
    record = Record(name, "in/f.csv", row, ("text",), {}, b"raw")
    answers = {
        "queue": Answer(("b",), 0.75, np.array([0.25, 0.75]), window=1),
        "topics": Answer(topics, 0.9, np.array([0.1, 0.9]), window=0),
    }
    prepared = Prepared(record, ("text",), "hash", "de", flags, False)
    return Scored(prepared, answers, "auto", ((0, 3), (2, 4)), True)


ROWS = [scored("t2", 5, topics=("x", "y"), flags=("html",)), scored("t1", 9)]
REJECTED = [
    Rejected(None, "in/f.csv", 1, Stage.READ, Reason.INVALID_ENCODING, "byte 0xFF", b"\xff\x00"),
    Rejected("t3", "in/f.csv", 2, Stage.INFER, Reason.NON_FINITE_SCORE, "NaN", b""),
]


def test_scores_have_the_declared_schema_and_the_given_values() -> None:
    table = scores_table(ROWS, HEADS, LINEAGE)
    assert table.schema.equals(scores_schema(HEADS))
    first = table.to_pylist()[0]
    assert first == {
        "record_id": "t2",
        "queue": "b", "queue_confidence": 0.75, "queue_scores": [0.25, 0.75], "queue_window": 1,
        "topics": ["x", "y"], "topics_confidence": pytest.approx(0.9),
        "topics_scores": [pytest.approx(0.1), pytest.approx(0.9)], "topics_window": 0,
        "decision": "auto", "lang": "de", "n_windows": 2,
        "spans": [{"start": 0, "end": 3}, {"start": 2, "end": 4}],
        "truncated": True, "flags": ["html"],
        "text_hash": "hash", "source_file": "in/f.csv", "source_row": 5,
        "partition_date": dt.date(2026, 11, 28),
        "model_name": "m", "model_version": "3", "model_digest": "d",
        "cleaner_version": "1-c", "run_id": "run",
    }  # fmt: skip
    assert table["record_id"].to_pylist() == ["t2", "t1"]


def rejects(rows: Sequence[Rejected], **policy: Any) -> pa.Table:
    return quarantine_table(rows, policy=QuarantineConfig(**policy), contract_version="c1")


def test_quarantine_has_the_declared_schema_and_the_given_values() -> None:
    table = rejects(REJECTED)
    assert table.schema.equals(quarantine_schema())
    assert table.to_pylist() == [
        {
            "record_id": None, "source_file": "in/f.csv", "source_row": 1, "stage": "read",
            "reason": "invalid_encoding", "detail": "byte 0xFF", "raw": b"\xff\x00",
            "raw_sha256": hashlib.sha256(b"\xff\x00").hexdigest(), "raw_bytes": 2,
            "contract_version": "c1",
        },
        {
            "record_id": "t3", "source_file": "in/f.csv", "source_row": 2, "stage": "infer",
            "reason": "non_finite_score", "detail": "NaN", "raw": b"",
            "raw_sha256": hashlib.sha256(b"").hexdigest(), "raw_bytes": 0,
            "contract_version": "c1",
        },
    ]  # fmt: skip


def test_the_policy_keeps_only_the_beginning_of_a_row_but_the_hash_of_all_of_it() -> None:
    row = Rejected("t", "f", 0, Stage.READ, Reason.MALFORMED_ROW, "got 3 fields", b"abcdef")
    kept = rejects([row], max_raw_bytes=4).to_pylist()[0]
    assert (kept["raw"], kept["raw_bytes"]) == (b"abcd", 6)
    assert kept["raw_sha256"] == hashlib.sha256(b"abcdef").hexdigest()


def test_the_policy_hash_keeps_no_byte_of_a_row() -> None:
    table = rejects(REJECTED, raw="hash")
    assert table.schema.equals(quarantine_schema())
    assert table["raw"].to_pylist() == [None, None]
    assert table["raw_sha256"].to_pylist() == rejects(REJECTED)["raw_sha256"].to_pylist()
    assert table["raw_bytes"].to_pylist() == [2, 0]


def test_a_row_of_which_only_the_beginning_was_read_tells_what_the_whole_was() -> None:
    row = Rejected(
        None, "f", 0, Stage.READ, Reason.RECORD_TOO_LARGE, "too large", b"begin",
        raw_sha256="of-all", raw_bytes=200_000_000,
    )  # fmt: skip
    kept = rejects([row]).to_pylist()[0]
    assert (kept["raw"], kept["raw_sha256"], kept["raw_bytes"]) == (b"begin", "of-all", 200_000_000)


def test_no_rows_keep_the_schema(tmp_path: Path) -> None:
    """FAILURES row 11: an empty shard must not write columns of the null type."""
    pq.write_table(scores_table([], HEADS, LINEAGE), tmp_path / "s.parquet")
    pq.write_table(rejects([]), tmp_path / "q.parquet")
    assert pq.read_schema(tmp_path / "s.parquet").equals(scores_schema(HEADS))
    assert pq.read_schema(tmp_path / "q.parquet").equals(quarantine_schema())


def test_only_nulls_and_only_empty_lists_keep_the_schema(tmp_path: Path) -> None:
    """FAILURES row 11: a first shard of nulls fixes no type that a later one breaks."""
    nulls, texts = rejects(REJECTED[:1]), rejects(REJECTED[1:])
    assert nulls.schema == texts.schema
    pq.write_table(nulls, tmp_path / "0.parquet")
    pq.write_table(texts, tmp_path / "1.parquet")
    assert pq.read_table(tmp_path)["record_id"].to_pylist() == [None, "t3"]
    bare = scores_table(ROWS[1:], HEADS, LINEAGE)
    assert bare.schema.equals(scores_schema(HEADS))
    assert bare["topics"].to_pylist() == bare["flags"].to_pylist() == [[]]


def test_pandas_pyarrow_and_duckdb_read_equal_values(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    pq.write_table(scores_table(ROWS, HEADS, LINEAGE), path, compression="zstd")
    columns = ["record_id", "queue", "topics", "queue_confidence", "source_row", "partition_date"]
    arrow = [tuple(row[name] for name in columns) for row in pq.read_table(path).to_pylist()]
    frame = pd.read_parquet(path)[columns].assign(topics=lambda df: df["topics"].map(list))
    query = f"SELECT {', '.join(columns)} FROM read_parquet('{path}')"
    assert list(frame.itertuples(index=False, name=None)) == arrow
    assert duckdb.execute(query).fetchall() == arrow
    assert arrow[0] == ("t2", "b", ["x", "y"], 0.75, 5, dt.date(2026, 11, 28))


def test_an_aspect_head_has_the_columns_of_a_list(tmp_path: Path) -> None:
    heads = {
        "mood": HeadConfig(
            kind="aspect", column="mood", labels=("good", "bad"), aspects=("food", "staff")
        )
    }
    scores = np.array([0.1, 0.8, 0.1, 0.2, 0.2, 0.6])
    answer = Answer(("food:good", "staff:bad"), 0.6, scores)
    record = Record("t1", "in/f.csv", 0, ("text",), {}, b"raw")
    row = Scored(Prepared(record, ("text",), "h", "de", (), False), {"mood": answer}, "auto", (),
                 False)  # fmt: skip
    pq.write_table(scores_table([row], heads, LINEAGE), tmp_path / "part.parquet")
    (found,) = pq.read_table(tmp_path / "part.parquet").to_pylist()
    assert found["mood"] == ["food:good", "staff:bad"]
    assert dict(zip(heads["mood"].score_names, found["mood_scores"], strict=True)) == {
        "food:none": pytest.approx(0.1), "food:good": pytest.approx(0.8),
        "food:bad": pytest.approx(0.1), "staff:none": pytest.approx(0.2),
        "staff:good": pytest.approx(0.2), "staff:bad": pytest.approx(0.6),
    }  # fmt: skip


def test_heads_with_texts_outside_say_what_fits() -> None:
    heads = {"queue": HEADS["queue"].model_copy(update={"outside": OutsideConfig()})}
    found = [
        replace(ROWS[0], answers={"queue": Answer(("b",), 0.75, np.zeros(2), 0, scope, outside)})
        for scope, outside in ((1.5, False), (-0.5, True), (None, False))
    ]
    table = scores_table(found, heads, LINEAGE)
    assert table.schema.equals(scores_schema(heads))
    assert table["queue_scope"].to_pylist() == [1.5, -0.5, None]
    assert table["queue_outside"].to_pylist() == [False, True, False]
    plain = scores_table(found, {"queue": HEADS["queue"]}, LINEAGE)
    assert plain.schema.names == [
        name for name in table.schema.names if name not in ("queue_scope", "queue_outside")
    ]
