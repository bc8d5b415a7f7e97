"""A published night at other places: whole or not at all, once, whoever dies on the way."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.engines.object_store import BucketStore, FolderStore
from pipeline.publish import Partition
from pipeline.sinks import LocalNight, ParquetSink, mirror
from schemas.errors import ConfigError, TransientError
from schemas.manifest import PartitionManifest
from schemas.task import SinkConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.engines.object_store import ObjectStore
    from schemas.home import Home
    from schemas.task import TaskConfig

FIRST = {"a": "billing", "b": "billing", "c": "shipping"}
SECOND = {"a": "technical", "b": "billing", "c": "shipping"}
THIRD = {"a": "technical", "b": "technical", "c": "shipping"}
CLOSED_PORT = "http://127.0.0.1:9"


class Killed(BaseException):
    """What ends a process that no handler sees."""


class DyingStore:
    """A store whose process dies before its n-th change; what was done before stays."""

    def __init__(self, store: ObjectStore, *, changes: int) -> None:
        self.location = store.location
        self.read, self.sizes = store.read, store.sizes
        self._store, self._left = store, changes

    def put(self, key: str, source: Path) -> None:
        self._live()
        self._store.put(key, source)

    def write(self, key: str, content: bytes) -> None:
        self._live()
        self._store.write(key, content)

    def remove(self, folder: str) -> None:
        self._live()
        self._store.remove(folder)

    def _live(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1


@pytest.fixture
def bucket(s3_client: Any, request: pytest.FixtureRequest) -> str:
    """The address of a prefix in a bucket of the test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:60].strip("-")
    s3_client.create_bucket(Bucket=name)
    return f"s3://{name}/nightly"


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "sink")
    return BucketStore(request.getfixturevalue("bucket"))


def night(home: Home, manifest: PartitionManifest) -> LocalNight:
    date = dt.date.fromisoformat(manifest.date)
    return LocalNight(Partition(home, manifest.task, date), manifest)


def contents(store: ObjectStore) -> dict[str, bytes | None]:
    return {key: store.read(key) for key in store.sizes("")}


def runs_in(store: ObjectStore) -> set[str]:
    return {key.split("run=")[1].split("/")[0] for key in store.sizes("") if "run=" in key}


def as_readers_see(store: ObjectStore) -> dict[str, str] | None:
    """Labels by record as one who starts at the manifest reads them."""
    day = "scores/tiny/date=2026-11-28"
    content = store.read(f"{day}/manifest.json")
    if content is None:
        return None
    manifest = PartitionManifest.model_validate_json(content)
    labels = {}
    for part in manifest.scores:
        data = store.read(f"{day}/run={manifest.run}/{part.name}")
        assert data is not None, part.name
        for row in pq.read_table(pa.BufferReader(data)).to_pylist():
            labels[row["record_id"]] = row["queue"]
    return labels


def test_a_night_is_copied_once_and_then_left_alone(
    home: Home, publish_rows: Any, store: ObjectStore
) -> None:
    manifest = publish_rows(FIRST)
    sink = ParquetSink(store, keep_runs=1)
    assert sink.put(night(home, manifest)) is True
    day, run = "tiny/date=2026-11-28", f"run={manifest.run}"
    assert sorted(store.sizes("")) == sorted(
        [
            f"scores/{day}/manifest.json",
            f"scores/{day}/{run}/manifest.json",
            *(f"{side}/{day}/{run}/part-0000{number}.parquet"
              for side in ("scores", "quarantine") for number in range(2)),
        ]
    )  # fmt: skip
    for key, content in contents(store).items():
        assert content == (home.root / key).read_bytes(), key
    untouchable = DyingStore(store, changes=0)
    assert ParquetSink(untouchable, keep_runs=1).put(night(home, manifest)) is False


def test_failure_08_readers_see_whole_nights_wherever_a_copy_dies(
    home: Home, publish_rows: Any, store: ObjectStore
) -> None:
    ParquetSink(store, keep_runs=0).put(night(home, publish_rows(FIRST)))
    second = night(home, publish_rows(SECOND))
    # Four files and the run's own manifest; with these the run is complete, and one is left.
    for survived, seen in ((0, FIRST), (3, FIRST), (5, FIRST), (1, SECOND)):
        with pytest.raises(Killed):
            ParquetSink(DyingStore(store, changes=survived), keep_runs=0).put(second)
        assert as_readers_see(store) == seen
    ParquetSink(store, keep_runs=0).put(second)
    assert runs_in(store) == {second.manifest.run}


@pytest.mark.parametrize("survived", range(9))
def test_failure_06_the_night_after_a_kill_equals_an_undisturbed_one(
    home: Home, publish_rows: Any, tmp_path: Path, survived: int
) -> None:
    """Of nine changes (four files, two manifests, two old folders, none) all but some are made."""
    disturbed, undisturbed = FolderStore(tmp_path / "a"), FolderStore(tmp_path / "b")
    first = night(home, publish_rows(FIRST))
    for store in (disturbed, undisturbed):
        ParquetSink(store, keep_runs=0).put(first)
    second = night(home, publish_rows(SECOND))
    ParquetSink(undisturbed, keep_runs=0).put(second)
    if survived < 8:
        with pytest.raises(Killed):
            ParquetSink(DyingStore(disturbed, changes=survived), keep_runs=0).put(second)
        expected = SECOND if survived >= 6 else FIRST
        assert as_readers_see(disturbed) == expected
    ParquetSink(disturbed, keep_runs=0).put(second)
    assert contents(disturbed) == contents(undisturbed)


def test_an_altered_or_missing_file_is_copied_again(
    home: Home, publish_rows: Any, tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "sink")
    local = night(home, publish_rows(FIRST))
    ParquetSink(store, keep_runs=1).put(local)
    whole = contents(store)
    parts = sorted((tmp_path / "sink" / "scores").rglob("part-*.parquet"))
    parts[0].unlink()
    parts[1].write_bytes(b"cut off")
    ParquetSink(store, keep_runs=1).put(local)
    assert contents(store) == whole


def test_old_runs_stay_as_long_as_readers_may_hold_them(
    home: Home, publish_rows: Any, store: ObjectStore
) -> None:
    sink = ParquetSink(store, keep_runs=1)
    foreign = "scores/tiny/date=2026-11-28/run=of-another-home/part-00000.parquet"
    store.write(foreign, b"on its way")
    runs = []
    for labels in (FIRST, SECOND, THIRD, SECOND):
        manifest = publish_rows(labels, keep_runs=5)
        sink.put(night(home, manifest))
        runs.append(manifest.run)
        assert runs_in(store) == {"of-another-home", *runs[-2:]}
        assert as_readers_see(store) == labels


def test_all_sinks_are_tried_and_the_night_stays_published(
    home: Home,
    tiny_task: TaskConfig,
    publish_rows: Any,
    s3_client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", CLOSED_PORT)
    manifest = publish_rows(FIRST)
    partition = night(home, manifest).partition
    sinks = (
        SinkConfig(location="gs://elsewhere"),
        SinkConfig(location="s3://tickets/nightly"),
        SinkConfig(location="copies"),
    )
    task = tiny_task.model_copy(
        update={"score": tiny_task.score.model_copy(update={"sinks": sinks})}
    )
    with pytest.raises(TransientError, match=r"s3://tickets/nightly.*try again"):
        mirror(task, partition, manifest, home=home)
    assert as_readers_see(FolderStore(home.root / "copies")) == FIRST
    assert partition.current() == manifest


def test_trouble_that_no_retry_mends_is_told_apart(
    home: Home, publish_rows: Any, bucket: str
) -> None:
    del publish_rows
    with pytest.raises(ConfigError, match="no such bucket"):
        BucketStore("s3://no-such-bucket/nightly")


def test_the_home_itself_is_no_sink(home: Home, tiny_task: TaskConfig, publish_rows: Any) -> None:
    manifest = publish_rows(FIRST)
    sinks = (SinkConfig(location="."),)
    task = tiny_task.model_copy(
        update={"score": tiny_task.score.model_copy(update={"sinks": sinks})}
    )
    with pytest.raises(ConfigError, match="this is the home itself"):
        mirror(task, night(home, manifest).partition, manifest, home=home)


def test_a_folder_that_refuses_is_a_configuration_error(
    home: Home, publish_rows: Any, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        blocked = tmp_path / "file"
        blocked.write_text("not a folder")
    else:
        blocked = tmp_path / "folder"
        blocked.mkdir(mode=0o500)
    local = night(home, publish_rows(FIRST))
    with pytest.raises((ConfigError, TransientError), match=str(blocked)):
        ParquetSink(FolderStore(blocked / "sink"), keep_runs=1).put(local)
