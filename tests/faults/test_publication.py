"""Publication where the clock lies, the disk is full, two drivers meet, and readers hold on."""

from __future__ import annotations

import datetime as dt
import errno
import itertools
import os
import random
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import publish
from pipeline.publish import PUBLICATIONS_FILE, Partition, reconcile
from schemas.errors import TransientError
from schemas.home import Home
from schemas.manifest import Counters, ModelRef, PartitionManifest, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

DATE = dt.date(2026, 11, 28)
SHARD = Shard(
    index=0, name="a.csv", path="/a.csv", format="csv", start=0, stop=9, first_row=0, rows=2
)


@pytest.fixture
def partition(home: Home) -> Partition:
    return Partition(home, "tiny", DATE)


def stage(partition: Partition, run: str) -> PartitionManifest:
    done = partition.staging(run).write(
        SHARD,
        scores=pa.table({"run_id": [run]}),
        quarantine=pa.table({"run_id": [run]}),
        counters=Counters(rows_read=2, rows_scored=1, rows_quarantined=1),
    )
    return PartitionManifest(
        task="tiny", date=str(DATE), run=run, fingerprint=run,
        model=ModelRef(name="m", version="1", digest="d"), config_digest="c", cleaner_version="1",
        inputs=(), counters=reconcile([SHARD], {0: done}, what="tiny"),
        scores=(done.scores,), quarantine=(done.quarantine,),
    )  # fmt: skip


def put(partition: Partition, run: str, *, keep_runs: int = 1) -> PartitionManifest:
    manifest = stage(partition, run)
    partition.publish(manifest, keep_runs=keep_runs)
    return manifest


class KilledError(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches kill -9."""


@contextmanager
def killed_before(call: int | None) -> Iterator[list[str]]:
    """Ends the block before its file operation number `call`; tells which ones it made."""
    made: list[str] = []

    def dying(name: str) -> Callable[..., Any]:
        operation = getattr(os, name)

        def operate(*args: Any, **options: Any) -> Any:
            if len(made) == call:
                raise KilledError
            made.append(name)
            return operation(*args, **options)

        return operate

    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "link", "fsync"):
            patch.setattr(os, name, dying(name))
        yield made


def put_again(partition: Partition, manifest: PartitionManifest) -> None:
    """What the next run of `nightmill score` does about a run whose shards are all done."""
    found = partition.reusable(manifest.run)
    if found is not None and found == partition.current():
        partition.settle(keep_runs=1)
    else:
        partition.publish(found or manifest, keep_runs=1)


def files_of(home: Home) -> dict[str, bytes]:
    """Bytes of all files and names of all folders, but for the log of publications."""
    found = {}
    for path in sorted(home.root.rglob("*")):
        if path.name != PUBLICATIONS_FILE:
            found[str(path.relative_to(home.root))] = path.read_bytes() if path.is_file() else b""
    return found


@pytest.fixture
def third_run(tmp_path: Path) -> Callable[[], tuple[Home, Partition, PartitionManifest]]:
    """Makes a home with one run superseded, one published, and one staged."""
    numbers = itertools.count()

    def make() -> tuple[Home, Partition, PartitionManifest]:
        home = Home(tmp_path / f"home{next(numbers)}")
        partition = Partition(home, "tiny", DATE)
        put(partition, "run-a")
        put(partition, "run-b")
        partition.staging("run-c").begin()
        return home, partition, stage(partition, "run-c")

    return make


def check_kills(
    made: tuple[Home, Partition, PartitionManifest], kills: Sequence[int], after: dict[str, bytes]
) -> None:
    """Kills publication after publication; then one is left in peace."""
    home, partition, manifest = made
    for call in kills:
        with killed_before(call):
            put_again(partition, manifest)
        current = partition.intact()  # what a reader finds: the old run or the new one, whole
        assert current.run in {"run-b", "run-c"}
    put_again(partition, manifest)
    assert files_of(home) == after
    assert [line.run for line in partition.publications()] == ["run-a", "run-b", "run-c"]


def test_failure_08_a_kill_at_any_file_operation_of_a_publication_is_mended_by_the_next(
    third_run: Callable[[], tuple[Home, Partition, PartitionManifest]],
) -> None:
    home, partition, manifest = third_run()
    with killed_before(None) as made:
        put_again(partition, manifest)
    after, chance = files_of(home), random.Random(8)
    assert made.count("rename") >= 4
    for call in range(len(made)):
        check_kills(third_run(), [call], after)
    for kills in (chance.choices(range(len(made)), k=3) for _ in range(40)):
        check_kills(third_run(), kills, after)


def superseded(home: Home) -> list[str]:
    return sorted(path.name for path in home.superseded("tiny").glob(f"date={DATE}/scores/*"))


def test_a_clock_set_back_does_not_change_which_runs_are_kept(
    partition: Partition, home: Home
) -> None:
    for run in ("run-c", "run-b", "run-a"):
        put(partition, run, keep_runs=2)
    # As if the runs before had been made in years to come.
    for path in home.superseded("tiny").rglob("run=*"):
        os.utime(path, (4e9, 4e9) if path.name == "run=run-c" else (3e9, 3e9))
    put(partition, "run-d", keep_runs=2)
    assert superseded(home) == ["run=run-a", "run=run-b"]


def test_a_run_that_is_current_again_counts_from_then(partition: Partition, home: Home) -> None:
    put(partition, "run-a", keep_runs=2)
    put(partition, "run-b", keep_runs=2)
    again = partition.reusable("run-a")
    assert again is not None
    partition.publish(again, keep_runs=2)
    put(partition, "run-c", keep_runs=1)
    assert superseded(home) == ["run=run-a"]


@pytest.mark.parametrize("order", [("run-a", "run-b"), ("run-b", "run-a")])
def test_the_run_begun_last_is_the_staged_one_whatever_its_files_times(
    partition: Partition, order: tuple[str, str]
) -> None:
    for run in order:
        stage(partition, run)
        partition.staging(run).begin()
    os.utime(partition.staging(order[0]).shards, (4e9, 4e9))
    staged = partition.staged()
    assert staged is not None
    assert staged.folder.name == order[1]


def test_a_publication_that_died_before_its_log_is_logged_when_it_is_settled(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = stage(partition, "run-a")

    def dying(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "_log", dying)
        with pytest.raises(KeyboardInterrupt):
            partition.publish(manifest, keep_runs=1)
    assert partition.current() == manifest
    for _ in range(2):
        partition.settle(keep_runs=1)
        assert [line.run for line in partition.publications()] == ["run-a"]


def test_a_full_disk_fails_the_publication_and_the_next_one_finishes_it(
    partition: Partition, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = put(partition, "run-a")
    manifest = stage(partition, "run-b")

    def full(_: Path, __: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("schemas.manifest.write_atomically", full)
        with pytest.raises(
            TransientError,
            match=r"^tiny 2026-11-28: run run-b is scored, but not published: \[Errno 28\]",
        ):
            partition.publish(manifest, keep_runs=1)
    assert partition.current() == before
    partition.publish(manifest, keep_runs=1)
    assert partition.current() == manifest
    assert [line.run for line in partition.publications()] == ["run-a", "run-b"]
    assert superseded(home) == ["run=run-a"]


def test_half_a_line_never_gets_into_the_log_of_publications(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(partition, "run-a")
    manifest = stage(partition, "run-b")

    def full(_: Path, __: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(publish, "write_atomically", full)
        with pytest.raises(TransientError):
            partition.publish(manifest, keep_runs=1)
    assert [line.run for line in partition.publications()] == ["run-a"]


def test_failure_08_what_killed_writers_left_is_not_published(
    partition: Partition, home: Home
) -> None:
    manifest = stage(partition, "run-a")
    staging = partition.staging("run-a")
    for folder in (staging.scores, staging.quarantine):
        (folder / ".part-00000.parquet.123-ab.tmp").write_bytes(b"PAR1 half a file")
    partition.scores.mkdir(parents=True)
    (partition.scores / ".manifest.json.123.tmp").write_bytes(b"{")
    partition.publish(manifest, keep_runs=1)
    assert list(home.root.rglob("*.tmp")) == []
    for path in home.root.rglob("*.parquet"):
        assert pq.read_table(path).num_rows == 1


def test_a_reader_of_the_manifest_before_finds_its_files_after_a_new_publication(
    partition: Partition,
) -> None:
    held = put(partition, "run-a")
    with partition.scores_files(held)[0].open("rb") as file:  # opened before, read after
        put(partition, "run-b")
        assert pq.read_table(file)["run_id"].to_pylist() == ["run-a"]
    for files in (partition.scores_files(held), partition.quarantine_files(held)):
        assert [pq.read_table(path)["run_id"].to_pylist() for path in files] == [["run-a"]]


def test_two_drivers_cannot_both_publish(partition: Partition, home: Home) -> None:
    with (
        partition.lock(),
        pytest.raises(TransientError, match="another run is scoring this partition"),
        Partition(home, "tiny", DATE).lock(),
    ):
        pass


def test_failure_09_what_tells_that_work_is_done_are_plain_files(partition: Partition) -> None:
    """No database that is mapped into memory: on network storage these hang."""
    stage(partition, "run-a")
    partition.staging("run-a").begin()
    partition.staging("run-a").attempts(1).begin()
    folder = partition.staging("run-a").folder
    names = sorted(str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*"))
    assert [name for name in names if (folder.parent / name).is_file()] == [
        "last-begun", "run-a/attempts/00001", "run-a/quarantine/part-00000.parquet",
        "run-a/scores/part-00000.parquet", "run-a/shards/00000.json",
    ]  # fmt: skip
