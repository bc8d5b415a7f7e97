"""A night as one commit of a Delta Lake table: replaced whole, once, on a folder and on S3."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.publish import Partition
from pipeline.sinks import LocalNight, mirror
from schemas.errors import ConfigError, TransientError
from schemas.records import scores_schema
from schemas.task import HeadConfig, SinkConfig

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

from pipeline.engines import delta_table  # noqa: E402
from pipeline.engines.delta_table import DeltaSink  # noqa: E402

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.manifest import PartitionManifest
    from schemas.task import TaskConfig

FIRST = {"a": "billing", "b": "billing", "c": "shipping"}
SECOND = {"a": "technical", "b": "billing"}
OTHER_DATE = dt.date(2026, 11, 29)


@pytest.fixture
def sink(home: Home, tiny_task: TaskConfig) -> DeltaSink:
    return DeltaSink("lake", tiny_task.heads, resolve=home.resolve)


def night(home: Home, manifest: PartitionManifest) -> LocalNight:
    date = dt.date.fromisoformat(manifest.date)
    return LocalNight(Partition(home, manifest.task, date), manifest)


def labels(table: Any, date: dt.date) -> dict[str, str]:
    rows = table.to_pyarrow_table().to_pylist()
    return {row["record_id"]: row["queue"] for row in rows if row["partition_date"] == date}


def test_a_night_replaces_its_date_and_no_other(
    home: Home, sink: DeltaSink, publish_rows: Any
) -> None:
    assert sink.put(night(home, publish_rows(FIRST)))
    assert sink.put(night(home, publish_rows(FIRST, date=OTHER_DATE)))
    assert sink.put(night(home, publish_rows(SECOND)))
    table = deltalake.DeltaTable(str(home.root / "lake" / "tiny"))
    assert labels(table, dt.date(2026, 11, 28)) == SECOND
    assert labels(table, OTHER_DATE) == FIRST
    assert table.metadata().partition_columns == ["partition_date"]
    old = deltalake.DeltaTable(str(home.root / "lake" / "tiny"), version=0)
    assert labels(old, dt.date(2026, 11, 28)) == FIRST  # a reader of the old version goes on


def test_failure_06_a_run_is_committed_once(home: Home, sink: DeltaSink, publish_rows: Any) -> None:
    """A driver that died behind its commit does not commit again; a run that comes back does."""
    first = night(home, publish_rows(FIRST, keep_runs=3))
    assert [sink.put(first), sink.put(first)] == [True, False]
    assert sink.put(night(home, publish_rows(SECOND, keep_runs=3)))
    back = night(home, publish_rows(FIRST, keep_runs=3))
    assert [sink.put(back), sink.put(back)] == [True, False]
    table = deltalake.DeltaTable(str(home.root / "lake" / "tiny"))
    assert table.version() == 2
    assert labels(table, dt.date(2026, 11, 28)) == FIRST
    assert table.history(1)[0]["nightmill.run"] == first.manifest.run


def test_failure_08_a_commit_that_dies_on_the_way_is_not_seen(
    home: Home, sink: DeltaSink, publish_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put(night(home, publish_rows(FIRST)))
    second = night(home, publish_rows(SECOND))

    def dying(path: Any, **options: Any) -> Any:
        if path == second.score_files[-1]:
            raise KeyboardInterrupt
        return original(path, **options)

    original = delta_table.pq.read_table
    monkeypatch.setattr(delta_table.pq, "read_table", dying)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - Arrow may give it another name
        sink.put(second)
    table = deltalake.DeltaTable(str(home.root / "lake" / "tiny"))
    assert labels(table, dt.date(2026, 11, 28)) == FIRST
    monkeypatch.undo()
    assert sink.put(second)
    table.update_incremental()
    assert labels(table, dt.date(2026, 11, 28)) == SECOND


def test_a_night_without_scored_rows_leaves_its_date_empty(
    home: Home, sink: DeltaSink, publish_rows: Any
) -> None:
    sink.put(night(home, publish_rows(FIRST)))
    assert sink.put(night(home, publish_rows({})))
    table = deltalake.DeltaTable(str(home.root / "lake" / "tiny"))
    assert labels(table, dt.date(2026, 11, 28)) == {}


def test_the_tables_columns_are_those_of_the_scores(
    home: Home, sink: DeltaSink, publish_rows: Any, tiny_task: TaskConfig
) -> None:
    sink.put(night(home, publish_rows(FIRST)))
    table = deltalake.DeltaTable(str(home.root / "lake" / "tiny")).to_pyarrow_table()
    expected = scores_schema(tiny_task.heads)
    assert table.schema.names == expected.names
    assert [field.type for field in table.schema] == [field.type for field in expected]
    other = {**tiny_task.heads, "mood": HeadConfig(column="mood", labels=("bad", "good"))}
    with pytest.raises(ConfigError, match="other columns"):
        DeltaSink("lake", other, resolve=home.resolve).put(night(home, publish_rows(SECOND)))


def test_s3(home: Home, tiny_task: TaskConfig, publish_rows: Any, s3_client: Any) -> None:
    s3_client.create_bucket(Bucket="lake")
    sink = DeltaSink("s3://lake/nightly/", tiny_task.heads, resolve=home.resolve)
    first = night(home, publish_rows(FIRST))
    assert [sink.put(first), sink.put(first)] == [True, False]
    assert sink.put(night(home, publish_rows(SECOND)))
    table = deltalake.DeltaTable(
        "s3://lake/nightly/tiny", storage_options={"aws_allow_http": "true"}
    )
    assert labels(table, dt.date(2026, 11, 28)) == SECOND


def test_trouble_is_told_apart(
    home: Home, tiny_task: TaskConfig, publish_rows: Any, s3_client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    local = night(home, publish_rows(FIRST))
    with pytest.raises(ConfigError, match=r"s3://no-such-bucket/tiny: refused"):
        DeltaSink("s3://no-such-bucket", tiny_task.heads, resolve=home.resolve).put(local)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(TransientError, match=r"s3://lake/tiny: cannot be written now"):
        DeltaSink("s3://lake", tiny_task.heads, resolve=home.resolve).put(local)


def test_a_missing_package_is_named_with_its_extra(
    home: Home, tiny_task: TaskConfig, publish_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "pipeline.engines.delta_table")
    local = night(home, publish_rows(FIRST))
    sinks = (SinkConfig(format="delta", location="lake"),)
    score = tiny_task.score.model_copy(update={"sinks": sinks})
    with pytest.raises(ConfigError, match=r"pip install 'nightmill\[delta\]'"):
        mirror(
            tiny_task.model_copy(update={"score": score}), local.partition, local.manifest,
            home=home,
        )  # fmt: skip
