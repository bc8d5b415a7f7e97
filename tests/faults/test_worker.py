"""One worker and what it scores: rows that kill, files that fail, and bytes that stay the same."""

from __future__ import annotations

import datetime as dt
import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from jobs import scoring
from jobs.scoring import ShardTask, ShardWorker
from pipeline import staging as staging_module
from pipeline.staging import Staging
from pipeline.survey import find_inputs, survey
from schemas.fingerprint import digest_of_file
from schemas.load import load_task
from schemas.manifest import ModelRef, ShardManifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.rows import RawRow
    from schemas.home import Home
    from schemas.manifest import Shard

DATE = dt.date(2026, 11, 28)
MODEL = ModelRef(name="tiny", version="1", digest="d")


class Desk:
    """A worker in this process, and shards of sixteen rows to give to it."""

    def __init__(self, home: Home, *overrides: str) -> None:
        self.home = home
        self.task = load_task("tiny", home, overrides=overrides)
        assert self.task.score.model is not None
        bundle = Path(self.task.score.model.removeprefix("path:"))
        self.worker = ShardWorker(bundle, self.task, MODEL, "1-c")
        found = survey(
            find_inputs(self.task.data.incoming, home, date=DATE), data=self.task.data, home=home,
            rows_per_shard=16, spool=home.root / "spool",
        )  # fmt: skip
        self.shards = found.shards

    def answer(self, shard: Shard, staging: Staging) -> dict[str, Any]:
        return self.worker(ShardTask(shard, staging.folder, DATE, "run").to_row())

    def score(self, shard: Shard, staging: Staging) -> ShardManifest:
        answer = self.answer(shard, staging)
        assert answer["error"] == ""
        return ShardManifest.model_validate_json(answer["manifest"])

    def staging(self, name: str = "staging", *, workers_ended: int = 0, shard: int = 0) -> Staging:
        """A new staging folder, in which a shard has already ended some workers."""
        staging = Staging(self.home.root / name)
        for _ in range(workers_ended):
            staging.attempts(shard).begin()
        return staging


@pytest.fixture
def desk(make_home: Callable[..., Home]) -> Desk:
    return Desk(make_home())


def contents(staging: Staging) -> dict[str, str]:
    return {
        str(path.relative_to(staging.folder)): digest_of_file(path)
        for path in sorted(staging.folder.rglob("*"))
        if path.is_file()
    }


def ids(staging: Staging, folder: str, **wanted: str) -> list[str]:
    rows = [row for path in sorted((staging.folder / folder).glob("*.parquet"))
            for row in pq.read_table(path).to_pylist()]  # fmt: skip
    return [
        row["record_id"] for row in rows if all(row[key] == value for key, value in wanted.items())
    ]


@pytest.mark.slow
@pytest.mark.alone
def test_a_shard_scored_in_a_child_has_the_same_bytes(desk: Desk) -> None:
    """Workers may have been killed from outside: then nothing of it may show."""
    shard = desk.shards[0]
    desk.score(shard, plain := desk.staging("plain"))
    desk.score(shard, careful := desk.staging("careful", workers_ended=2))
    assert contents(careful) == contents(plain)
    assert sorted(contents(plain)) == [
        "quarantine/part-00000.parquet", "scores/part-00000.parquet", "shards/00000.json",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.alone
def test_rows_that_end_their_process_are_found_and_the_others_keep_their_bytes(
    make_home: Callable[..., Home], inject: Callable[..., None]
) -> None:
    """Crashes and a lack of memory; t10 and t11 have one text."""
    desk = Desk(make_home(max_attempts=1))
    shard = desk.shards[0]
    desk.score(shard, plain := desk.staging("plain"))
    inject(segfault=["t10", "t11"], memory_error=["t2"])
    found = desk.score(shard, careful := desk.staging("careful", workers_ended=1))

    counters = found.counters
    assert (counters.rows_read, counters.rows_scored, counters.rows_quarantined) == (16, 13, 3)
    assert counters.quarantined_by_reason == {"ends_its_worker": 3}
    culprits = ids(careful, "quarantine", stage="infer", reason="ends_its_worker")
    assert culprits == ["t2", "t10", "t11"]
    before = pq.read_table(plain.scores / "part-00000.parquet").to_pylist()
    after = pq.read_table(careful.scores / "part-00000.parquet").to_pylist()
    assert after == [row for row in before if row["record_id"] not in culprits]
    assert careful.signs_of_life() == {}


@pytest.mark.slow
@pytest.mark.alone
def test_what_was_found_before_a_kill_is_not_tried_again(
    desk: Desk, inject: Callable[..., None]
) -> None:
    """With the culprit known from the attempts nothing dies any more: no search is needed."""
    shard = desk.shards[0]
    inject(segfault=["t5"])
    staging = desk.staging(workers_ended=2)
    for _ in range(2):
        staging.attempts(0).ended_alone(5)
    searches: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.careful.find_culprits", lambda *_: searches.append(1) or ())
        found = desk.score(shard, staging)
    assert found.counters.quarantined_by_reason == {"ends_its_worker": 1}
    assert searches == []
    assert ids(staging, "quarantine") == ["t5"]


@pytest.mark.slow
@pytest.mark.alone
def test_a_row_that_hangs_is_found_as_one_that_crashes(
    make_home: Callable[..., Home], inject: Callable[..., None]
) -> None:
    desk = Desk(make_home(no_progress_timeout_s=16, max_attempts=1))
    shard = desk.shards[0].model_copy(update={"only_rows": (1,)})
    inject(hang=["t1"])
    found = desk.score(shard, desk.staging(workers_ended=1))
    assert found.counters.quarantined_by_reason == {"ends_its_worker": 1}
    assert found.counters.rows_scored == 0


@pytest.mark.slow
@pytest.mark.alone
def test_a_model_that_cannot_be_loaded_is_no_rows_fault(desk: Desk) -> None:
    bundle = desk.home.root / "bundle"
    assert desk.task.score.model is not None
    shutil.copytree(desk.task.score.model.removeprefix("path:"), bundle)
    broken = ShardWorker(bundle, desk.task, MODEL, "1-c")
    (bundle / "model.onnx").write_bytes(b"cut off")
    staging = desk.staging(workers_ended=2)
    answer = broken(ShardTask(desk.shards[0], staging.folder, DATE, "run").to_row())
    assert answer["error"].startswith("ShardError: the model cannot be loaded: ArtifactError: ")
    assert staging.finished(desk.shards) == {}


def test_a_shard_that_ends_its_worker_whatever_is_done_is_given_up(desk: Desk) -> None:
    """So that a job ends: Ray gives the shard of a dead worker to another one without limit."""
    staging = desk.staging(workers_ended=4)
    answer = desk.answer(desk.shards[0], staging)
    assert answer["error"] == "ShardError: shard 0 ended its worker 4 times; run again"
    assert desk.answer(desk.shards[0], staging)["error"] == ""  # the next run begins anew


def test_the_mark_of_an_attempt_is_there_while_it_lasts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = desk.staging()
    seen: list[dict[str, int]] = []
    original = scoring.read_shard

    def looking(shard: Shard) -> Iterator[Any]:
        seen.append(staging.signs_of_life())
        yield from original(shard)

    monkeypatch.setattr(scoring, "read_shard", looking)
    desk.score(desk.shards[0], staging)
    assert [list(signs) for signs in seen] == [["00000"]]
    assert staging.signs_of_life() == {}


@pytest.mark.parametrize(("failures", "tries"), [(1, 2), (2, 2), (2, 3)])
def test_a_read_that_fails_is_tried_again_so_many_times(
    make_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch, failures: int, tries: int
) -> None:
    desk = Desk(make_home(max_attempts=tries))
    monkeypatch.setattr(scoring, "_PAUSE_S", 0.0)
    left, original = iter(range(failures)), scoring.read_shard

    def failing(shard: Shard) -> Iterator[RawRow | Any]:
        rows = original(shard)
        yield next(rows)
        if next(left, None) is not None:
            raise OSError(errno.EIO, "Input/output error", shard.path)
        yield from rows

    monkeypatch.setattr(scoring, "read_shard", failing)
    staging = desk.staging()
    answer = desk.answer(desk.shards[0], staging)
    if failures >= tries:
        assert answer["error"].startswith("OSError: [Errno 5] Input/output error: '")
        assert desk.answer(desk.shards[0], staging)["error"] == ""
    else:
        assert answer["error"] == ""
    with monkeypatch.context() as patch:
        patch.setattr(scoring, "read_shard", original)
        desk.score(desk.shards[0], plain := desk.staging("plain"))
    assert contents(staging) == contents(plain)


def test_a_full_disk_fails_the_shard_and_leaves_its_room_free(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_PAUSE_S", 0.0)
    original = pq.write_table

    def full(table: Any, file: Any, **named: Any) -> None:
        file.write(b"PAR1 and some more")
        raise OSError(errno.ENOSPC, "No space left on device")

    staging = desk.staging()
    with monkeypatch.context() as patch:
        patch.setattr(staging_module.pq, "write_table", full)
        answer = desk.answer(desk.shards[0], staging)
    assert answer["error"] == "OSError: [Errno 28] No space left on device"
    assert [name for name in contents(staging) if not name.startswith("attempts/")] == []
    assert original is pq.write_table
    desk.score(desk.shards[0], staging)
    desk.score(desk.shards[0], plain := desk.staging("plain"))
    assert contents(staging) == contents(plain)


def test_failure_01_a_limit_under_what_the_model_needs_is_told(desk: Desk) -> None:
    home_limit = ("score.max_worker_mib=256",)
    tight = Desk(desk.home, *home_limit)  # torch alone is more, where other tests have loaded it
    tight.worker._own_mib = 300
    answer = tight.answer(desk.shards[0], desk.staging())
    assert answer["error"] == (
        "ShardError: a worker holds 300 MiB before its first row, score.max_worker_mib is 256; "
        "raise it"
    )


def test_failure_10_rows_that_are_lost_or_doubled_are_not_staged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = scoring.scores_table

    def doubled(rows: Any, *rest: Any) -> Any:
        return original([rows[0], rows[0], *rows[2:]], *rest)

    monkeypatch.setattr(scoring, "scores_table", doubled)
    staging = desk.staging()
    answer = desk.answer(desk.shards[0], staging)
    assert answer["error"] == (
        f"ShardError: shard 0 of incoming/tiny/date={DATE}/rows.jsonl: 16 rows expected, got 16, "
        f"15 of them different; missing are [1]"
    )
    assert staging.finished(desk.shards) == {}
