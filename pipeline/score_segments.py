"""Answers as files: a segment is written once, named by its content, and never altered.

A segment is `NAME.parquet`, the answers, and `NAME.keys`, the first half of each text's hash. The
second is small enough to be read whole for every segment, and is written last.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.heads import Answer, decide
from pipeline.inference import Inferred
from schemas.manifest import write_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice

KEYS_SUFFIX = ".keys"
_KEY = np.dtype(">u8")
_KEY_HEX_DIGITS = 16
# What can be wrong with a file that somebody cut off, altered or removed.
_UNREADABLE = (OSError, pa.ArrowException, KeyError, ValueError, TypeError)


def keys_of(hashes: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The index keys `(N,)` of text hashes; two texts may share one, which the hash then tells."""
    return np.array([int(text_hash[:_KEY_HEX_DIGITS], 16) for text_hash in hashes], np.uint64)


def write_segment(
    folder: Path, answers: Mapping[str, Inferred], heads: tuple[HeadSlice, ...]
) -> Path:
    """Writes finite answers by text hash; answers the path of the keys."""
    table = _table(answers, heads)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    path = folder / f"{_digest(content)}.parquet"
    write_atomically(path, content)
    keys = path.with_suffix(KEYS_SUFFIX)
    write_atomically(keys, keys_of(list(answers)).astype(_KEY).tobytes())
    return keys


def read_keys(path: Path) -> npt.NDArray[np.uint64]:
    """The keys `(N,)` of a segment; none where the file is cut off or gone."""
    try:
        return np.frombuffer(path.read_bytes(), _KEY).astype(np.uint64)
    except (OSError, ValueError):
        return np.empty(0, np.uint64)


def read_segment(
    keys: Path, wanted: Collection[str], heads: tuple[HeadSlice, ...]
) -> dict[str, Inferred]:
    """The answers to the wanted text hashes; none where the segment is damaged or gone."""
    path = keys.with_suffix(".parquet")
    try:
        content = path.read_bytes()
        if _digest(content) != path.stem:
            return {}
        table = pq.read_table(pa.BufferReader(content))
        rows = table.filter(pc.field("text_hash").isin(list(wanted))).to_pylist()
        return {row["text_hash"]: _inferred(row, heads) for row in rows}
    except _UNREADABLE:
        return {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _table(answers: Mapping[str, Inferred], heads: tuple[HeadSlice, ...]) -> pa.Table:
    # The decision is not kept: its thresholds may be others tomorrow.
    columns: dict[str, Any] = {"text_hash": pa.array(list(answers), pa.string())}
    for head in heads:
        of_head = [inferred.answers[head.name] for inferred in answers.values()]
        columns |= {
            f"{head.name}_labels": pa.array(
                [list(answer.labels) for answer in of_head], pa.list_(pa.string())
            ),
            f"{head.name}_confidence": pa.array([a.confidence for a in of_head], pa.float64()),
            f"{head.name}_scores": pa.array([a.scores for a in of_head], pa.list_(pa.float64())),
            f"{head.name}_window": pa.array([a.window for a in of_head], pa.int32()),
        }
        if head.scope_rule is not None:
            scopes = pa.array([answer.scope for answer in of_head], pa.float64())
            columns[f"{head.name}_scope"] = scopes
    spans = [[list(span) for span in inferred.spans] for inferred in answers.values()]
    columns["spans"] = pa.array(spans, pa.list_(pa.list_(pa.int32())))
    for name in ("truncated", "windows_made", "windows_aggregated", "tokens"):
        columns[name] = [getattr(inferred, name) for inferred in answers.values()]
    return pa.table(columns)


def _scope(row: Mapping[str, Any], head: HeadSlice) -> dict[str, Any]:
    if head.scope_rule is None:
        return {}
    score = row[f"{head.name}_scope"]
    return {"scope": score, "outside": score < head.scope_rule.threshold}


def _inferred(row: Mapping[str, Any], heads: tuple[HeadSlice, ...]) -> Inferred:
    answers = {
        head.name: Answer(
            labels=tuple(row[f"{head.name}_labels"]),
            confidence=row[f"{head.name}_confidence"],
            scores=np.array(row[f"{head.name}_scores"], np.float64),
            window=row[f"{head.name}_window"],
            **_scope(row, head),
        )
        for head in heads
    }
    return Inferred(
        answers=answers,
        decision=decide(answers, heads),
        spans=tuple((start, end) for start, end in row["spans"]),
        truncated=row["truncated"],
        windows_made=row["windows_made"],
        windows_aggregated=row["windows_aggregated"],
        tokens=row["tokens"],
        remembered=True,
    )
