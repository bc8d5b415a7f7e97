"""What is left to score, what it has cost, and what a person is told of the input."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.inference import ShardWork, tell_guesses
from pipeline.staging import Staging
from schemas.manifest import Counters, InputFile, Shard

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SHARDS = tuple(
    Shard(
        index=index, name="a.csv", path="a.csv", format="csv", start=index, stop=index + 1,
        first_row=index * 10, rows=10, only_rows=(index * 10,) if index else None,
    )
    for index in range(3)
)  # fmt: skip


def test_only_shards_that_are_not_staged_are_left(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    table = pa.table({"record_id": ["t"]})
    staging.write(SHARDS[1], scores=table, quarantine=table, counters=Counters())
    work = ShardWork("run", dt.date(2026, 11, 28), staging, SHARDS)
    assert [shard.index for shard in work.todo] == [0, 2]
    assert list(work.done()) == [1]
    effort = work.effort()
    assert (effort.shards_scored, effort.rows_scored) == (2, 11)  # one row of a restricted shard
    assert effort.seconds >= 0


def test_a_guessed_encoding_is_told_and_a_known_one_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = InputFile(name="a.csv", format="csv", bytes=1, rows=1, sha256="a")
    guessed = known.model_copy(
        update={"name": "b.csv", "encoding": "cp1252", "encoding_guessed": True}
    )
    with caplog.at_level(logging.WARNING):
        tell_guesses([known, guessed], what="tiny 2026-11-28")
    assert [record.getMessage() for record in caplog.records] == [
        "tiny 2026-11-28: b.csv is not UTF-8 and was read as cp1252 by a guess; "
        "data.encoding declares it"
    ]
