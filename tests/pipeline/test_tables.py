"""Scored and rejected rows as Arrow tables of exactly the declared schemas."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipeline.flow import Prepared, Scored
from pipeline.heads import Answer
from pipeline.rows import Record, Rejected
from pipeline.tables import Lineage, quarantine_table, scores_table
from schemas.manifest import ModelRef
from schemas.reasons import Reason, Stage
from schemas.records import quarantine_schema, scores_schema
from schemas.task import HeadConfig

if TYPE_CHECKING:
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
        "queue": Answer(("b",), 0.75, np.array([0.25, 0.75])),
        "topics": Answer(topics, 0.9, np.array([0.1, 0.9])),
    }
    return Scored(Prepared(record, ("text",), "hash", "de", flags, False), answers, "auto", 2, True)


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
        "queue": "b", "queue_confidence": 0.75, "queue_scores": [0.25, 0.75],
        "topics": ["x", "y"], "topics_confidence": pytest.approx(0.9),
        "topics_scores": [pytest.approx(0.1), pytest.approx(0.9)],
        "decision": "auto", "lang": "de", "n_windows": 2, "truncated": True, "flags": ["html"],
        "text_hash": "hash", "source_file": "in/f.csv", "source_row": 5,
        "partition_date": dt.date(2026, 11, 28),
        "model_name": "m", "model_version": "3", "model_digest": "d",
        "cleaner_version": "1-c", "run_id": "run",
    }  # fmt: skip
    assert table["record_id"].to_pylist() == ["t2", "t1"]


def test_quarantine_has_the_declared_schema_and_the_given_values() -> None:
    table = quarantine_table(REJECTED)
    assert table.schema.equals(quarantine_schema())
    assert table.to_pylist() == [
        {
            "record_id": None, "source_file": "in/f.csv", "source_row": 1, "stage": "read",
            "reason": "invalid_encoding", "detail": "byte 0xFF", "raw": b"\xff\x00",
        },
        {
            "record_id": "t3", "source_file": "in/f.csv", "source_row": 2, "stage": "infer",
            "reason": "non_finite_score", "detail": "NaN", "raw": b"",
        },
    ]  # fmt: skip


def test_no_rows_keep_the_schema(tmp_path: Path) -> None:
    """FAILURES row 11: an empty shard must not write columns of the null type."""
    pq.write_table(scores_table([], HEADS, LINEAGE), tmp_path / "s.parquet")
    pq.write_table(quarantine_table([]), tmp_path / "q.parquet")
    assert pq.read_schema(tmp_path / "s.parquet").equals(scores_schema(HEADS))
    assert pq.read_schema(tmp_path / "q.parquet").equals(quarantine_schema())


def test_only_nulls_and_only_empty_lists_keep_the_schema(tmp_path: Path) -> None:
    """FAILURES row 11: a first shard of nulls fixes no type that a later one breaks."""
    nulls, texts = quarantine_table(REJECTED[:1]), quarantine_table(REJECTED[1:])
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
