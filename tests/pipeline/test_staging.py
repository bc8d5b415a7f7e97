"""A shard counts as done when its manifest is there, and that is written last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.staging import Staging, check_each_row_once, link_part, write_parquet
from schemas.errors import ShardError
from schemas.fingerprint import digest_of_file
from schemas.manifest import Counters, Shard, ShardManifest

if TYPE_CHECKING:
    from typing import BinaryIO

SHARD = Shard(
    index=3, name="in/a.csv", path="/in/a.csv", format="csv", start=0, stop=9, first_row=0, rows=3
)
SCORES = pa.table({"record_id": ["a", "b"], "queue": ["x", "y"]})
REJECTED = pa.table({"record_id": ["c"]})
COUNTERS = Counters(rows_read=3, rows_scored=2, rows_quarantined=1)


def write(staging: Staging) -> ShardManifest:
    return staging.write(SHARD, scores=SCORES, quarantine=REJECTED, counters=COUNTERS)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".tmp")
    }


def test_failure_06_a_written_shard_is_done_and_named_by_its_index(tmp_path: Path) -> None:
    """File names are those of the shard, so a retry replaces, never adds."""
    staging = Staging(tmp_path)
    manifest = write(staging)
    assert sorted(contents(tmp_path)) == [
        "quarantine/part-00003.parquet",
        "scores/part-00003.parquet",
        "shards/00003.json",
    ]
    path = tmp_path / "scores" / manifest.scores.name
    assert (manifest.scores.rows, manifest.quarantine.rows) == (2, 1)
    assert manifest.scores.sha256 == digest_of_file(path)
    assert pq.read_table(path).to_pylist() == SCORES.to_pylist()
    assert staging.finished([SHARD]) == {3: manifest}


def test_the_same_shard_gives_the_same_bytes(tmp_path: Path) -> None:
    write(Staging(tmp_path / "a"))
    write(Staging(tmp_path / "b"))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


# Two tables and a manifest are each synced, renamed, and their folder is synced.
KILLS = [("write_table", 2), ("fsync", 5), ("replace", 3)]


@pytest.mark.parametrize(
    ("step", "call"), [(step, call) for step, calls in KILLS for call in range(calls)]
)
def test_failure_06_08_a_kill_at_any_step_leaves_no_done_shard_and_a_rerun_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    """No half file counts, and the rerun publishes the same bytes."""
    place = {"fsync": os, "replace": Path, "write_table": pq}[step]
    original, calls = getattr(place, step), iter(range(100))

    def dying(*arguments: object, **named: object) -> object:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    staging = Staging(tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(place, step, dying)
        with pytest.raises(KeyboardInterrupt):
            write(staging)
    assert staging.finished([SHARD]) == {}
    manifest = write(staging)
    assert staging.finished([SHARD]) == {3: manifest}
    write(Staging(tmp_path / "whole"))
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_torn_manifest_does_not_count(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    write(staging)
    path = tmp_path / "shards" / "00003.json"
    path.write_bytes(path.read_bytes()[:40])
    assert staging.finished([SHARD]) == {}


def test_the_manifest_of_another_shard_does_not_count(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    write(staging)
    moved = SHARD.model_copy(update={"stop": 12, "rows": 4})
    assert staging.finished([moved]) == {}


def test_a_forgotten_shard_is_not_done(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    write(staging)
    staging.forget(3)
    staging.forget(4)
    assert staging.finished([SHARD]) == {}


def test_a_linked_file_is_the_same_file_under_another_name(tmp_path: Path) -> None:
    part = write_parquet(SCORES, tmp_path / "old" / "a.parquet")
    target = tmp_path / "new" / "b.parquet"
    linked = link_part(tmp_path / "old" / "a.parquet", target, part)
    assert linked == part.model_copy(update={"name": "b.parquet"})
    assert target.samefile(tmp_path / "old" / "a.parquet")


def test_a_file_is_copied_where_it_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "new" / "a.parquet"
    part = write_parquet(SCORES, source)
    link_part(source, target, part)

    def refuse(*_: object) -> None:
        raise OSError(18, "another file system")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    before = source.read_bytes()
    link_part(source, target, part)  # over the link: the file behind it must not be written into
    assert not target.samefile(source)
    assert target.read_bytes() == source.read_bytes() == before
    assert digest_of_file(target) == part.sha256


def test_a_write_that_fails_gives_back_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, file: BinaryIO, **__: object) -> None:
        file.write(b"PAR1")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            write_parquet(SCORES, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scored", "rejected", "message"),
    [
        ([5, 6], [7], None),
        ([7, 5], [6], None),  # the order is the reader's affair
        ([5, 6], [], r"3 rows expected, got 2, 2 of them different; missing are \[7\]"),
        ([5, 6], [6, 7], r"3 rows expected, got 4, 3 of them different; missing are \[\]"),
        ([5, 5], [7], r"3 rows expected, got 3, 2 of them different; missing are \[6\]"),
        ([5, 6], [8], r"3 rows expected, got 3, 3 of them different; missing are \[7\]"),
    ],
)
def test_failure_07_10_each_row_is_in_one_of_the_two_tables_once(
    scored: list[int], rejected: list[int], message: str | None
) -> None:
    shard = SHARD.model_copy(update={"first_row": 5})
    tables = [pa.table({"source_row": pa.array(rows, pa.int64())}) for rows in (scored, rejected)]
    if message is None:
        check_each_row_once(shard, *tables)
        return
    with pytest.raises(ShardError, match=rf"^shard 3 of in/a\.csv: {message}$"):
        check_each_row_once(shard, *tables)


def test_a_restricted_shard_answers_for_its_own_rows_only() -> None:
    shard = SHARD.model_copy(update={"rows": 9, "only_rows": (2, 4)})
    tables = [pa.table({"source_row": pa.array(rows, pa.int64())}) for rows in ([4], [2])]
    check_each_row_once(shard, *tables)
