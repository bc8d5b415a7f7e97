"""Publication: every step can fail and be repeated; readers see one run, never a mixture."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline import publish
from pipeline.publish import MANIFEST_FILE, Effort, Partition, reconcile
from schemas.errors import ArtifactError, ShardError, TransientError
from schemas.fingerprint import digest_of_file
from schemas.manifest import Counters, ModelRef, PartitionManifest, Replay, Shard, ShardManifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.home import Home

DATE = dt.date(2026, 11, 28)
SHARDS = tuple(
    Shard(
        index=index, name="in/a.csv", path="/in/a.csv", format="csv",
        start=index * 10, stop=index * 10 + 10, first_row=index * 3, rows=3,
    )
    for index in range(2)
)  # fmt: skip
COUNTERS = Counters(rows_read=3, rows_scored=2, rows_quarantined=1)


@pytest.fixture
def partition(home: Home) -> Partition:
    return Partition(home, "tickets", DATE)


def stage(partition: Partition, run: str) -> PartitionManifest:
    """Two finished shards of a run, and the manifest that publishes them."""
    done = {
        shard.index: partition.staging(run).write(
            shard,
            scores=pa.table({"run_id": [run, run], "shard": [shard.index] * 2}),
            quarantine=pa.table({"run_id": [run]}),
            counters=COUNTERS,
        )
        for shard in SHARDS
    }
    return PartitionManifest(
        task="tickets",
        date=DATE.isoformat(),
        run=run,
        fingerprint=run * 4,
        model=ModelRef(name="m", version="1", digest="d"),
        config_digest="c",
        cleaner_version="1",
        inputs=(),
        counters=reconcile(SHARDS, done, what="tickets"),
        scores=tuple(done[shard.index].scores for shard in SHARDS),
        quarantine=tuple(done[shard.index].quarantine for shard in SHARDS),
    )


def put(partition: Partition, run: str, *, keep_runs: int = 1) -> PartitionManifest:
    manifest = stage(partition, run)
    partition.publish(manifest, keep_runs=keep_runs)
    return manifest


def visible_run(partition: Partition) -> str | None:
    """The run that a reader by manifest sees, after checking that all its files are its own."""
    manifest = partition.current()
    if manifest is None:
        return None
    for folder, parts in (
        (partition.scores, manifest.scores),
        (partition.quarantine, manifest.quarantine),
    ):
        for part in parts:
            assert digest_of_file(folder / f"run={manifest.run}" / part.name) == part.sha256
    return manifest.run


def published_bytes(partition: Partition) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for folder in (partition.scores, partition.quarantine)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".jsonl" and not path.name.endswith(".tmp")
    }


def test_nothing_is_current_before_the_first_publication(partition: Partition) -> None:
    assert partition.current() is None
    assert partition.reusable("run1") is None
    assert partition.publications() == ()


def test_a_published_run_is_current_and_complete(partition: Partition, home: Home) -> None:
    manifest = put(partition, "run1")
    assert partition.current() == manifest
    assert visible_run(partition) == "run1"
    assert partition.reusable("run1") == manifest
    assert manifest.counters.rows_read == 6
    assert not (home.staging("tickets") / f"date={DATE}").exists()


def test_a_new_run_takes_the_old_one_out_of_readers_globs(partition: Partition, home: Home) -> None:
    put(partition, "run1")
    put(partition, "run2")
    assert visible_run(partition) == "run2"
    globbed = {path.parent.name for path in home.scores("tickets").rglob("*.parquet")}
    assert globbed == {"run=run2"}
    assert len(list(home.superseded("tickets").rglob("*.parquet"))) == 4


def test_publications_tell_when_which_run_became_current(partition: Partition) -> None:
    partition.publish(
        stage(partition, "run1"),
        keep_runs=1,
        effort=Effort(seconds=2.5, shards_scored=2, rows_scored=6, worker_seconds=3.5, workers=2),
    )
    put(partition, "run2")
    first, second = partition.publications()
    assert (first.run, second.run) == ("run1", "run2")
    assert (first.seconds, first.shards_scored, first.worker_seconds) == (2.5, 2, 3.5)
    assert dt.datetime.fromisoformat(first.published_at).utcoffset() == dt.timedelta(0)


# Each way a step can fail: what is patched, and where.
STEPS: dict[str, tuple[Any, str]] = {
    "rename": (Path, "rename"),
    "replace": (Path, "replace"),
    "manifest": (PartitionManifest, "write"),
    "log": (Partition, "_log"),
    "supersede": (Partition, "_supersede_others"),
    "sweep": (publish, "_sweep"),
    "remove": (shutil, "rmtree"),
}


def failing_once(original: Callable[..., Any], call: int) -> Callable[..., Any]:
    calls = iter(range(1000))

    def function(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    return function


@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("step", STEPS)
def test_failure_05_06_07_08_a_run_that_died_while_publishing_is_finished_by_the_next_call(
    partition: Partition, home: Home, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    """Whatever step dies, readers see the old run or the new one."""
    put(partition, "run0", keep_runs=1)
    put(partition, "run1", keep_runs=1)
    manifest = stage(partition, "run2")
    place, name = STEPS[step]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, failing_once(getattr(place, name), call))
        try:
            partition.publish(manifest, keep_runs=1)
        except KeyboardInterrupt:
            assert visible_run(partition) in {"run1", "run2"}
    partition.publish(manifest, keep_runs=1)
    assert visible_run(partition) == "run2"
    assert partition.reusable("run2") == manifest

    other = Partition(type(home)(home.root / "other"), "tickets", DATE)
    put(other, "run2")
    assert published_bytes(partition) == published_bytes(other)
    kept = {path.name for path in (home.superseded("tickets") / f"date={DATE}/scores").iterdir()}
    assert kept == {"run=run1"}


def test_a_publication_can_be_repeated_as_it_is(partition: Partition) -> None:
    manifest = put(partition, "run1")
    before = published_bytes(partition)
    partition.publish(manifest, keep_runs=1)
    assert published_bytes(partition) == before


def test_a_superseded_run_comes_back_without_inference(partition: Partition) -> None:
    first = put(partition, "run1")
    put(partition, "run2")
    manifest = partition.reusable("run1")
    assert manifest == first
    partition.publish(first, keep_runs=1)
    assert visible_run(partition) == "run1"
    assert partition.reusable("run2") is not None


@pytest.mark.parametrize("damaged", ["scores", "quarantine"])
def test_a_damaged_superseded_run_is_refused_once_and_then_scored_again(
    partition: Partition, home: Home, damaged: str
) -> None:
    """A removal that died in the middle must lead to inference, not to an endless retry."""
    first = put(partition, "run1")
    put(partition, "run2")
    (home.superseded("tickets") / f"date={DATE}/{damaged}/run=run1/part-00000.parquet").unlink()
    with pytest.raises(ShardError, match="missing or altered"):
        partition.publish(first, keep_runs=1)
    assert visible_run(partition) == "run2"
    assert partition.reusable("run1") is None
    put(partition, "run1")
    assert visible_run(partition) == "run1"


@pytest.mark.parametrize("keep_runs", [0, 1, 2])
def test_only_so_many_superseded_runs_are_kept_newest_first(
    partition: Partition, home: Home, keep_runs: int
) -> None:
    for run in ("run1", "run2", "run3", "run4"):
        put(partition, run, keep_runs=keep_runs)
    day = home.superseded("tickets") / f"date={DATE}"
    expected = [f"run=run{number}" for number in range(4 - keep_runs, 4)]
    for kept in ("scores", "quarantine"):
        assert sorted(path.name for path in (day / kept).glob("*")) == expected


@pytest.mark.parametrize("folder", ["scores", "quarantine"])
@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_a_damaged_file_is_not_published_and_its_shard_is_forgotten(
    partition: Partition, folder: str, damage: str
) -> None:
    put(partition, "run1")
    manifest = stage(partition, "run2")
    staging = partition.staging("run2")
    path = staging.folder / folder / "part-00001.parquet"
    if damage == "altered":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(ShardError, match=r"part-00001\.parquet is missing or altered; run again"):
        partition.publish(manifest, keep_runs=1)
    assert visible_run(partition) == "run1"
    assert list(staging.finished(SHARDS)) == [0]

    retried = stage(partition, "run2")  # the shard is scored again; files of both are replaced
    partition.publish(retried, keep_runs=1)
    assert visible_run(partition) == "run2"


def test_failure_07_only_the_damaged_shard_is_scored_again(partition: Partition) -> None:
    """What is done stays done, and what is not is not skipped."""
    manifest = stage(partition, "run1")
    staging = partition.staging("run1")
    (staging.scores / "part-00001.parquet").write_bytes(b"torn")
    with pytest.raises(ShardError):
        partition.publish(manifest, keep_runs=1)
    assert list(staging.finished(SHARDS)) == [0]
    staging.write(
        SHARDS[1],
        scores=pa.table({"run_id": ["run1", "run1"], "shard": [1, 1]}),
        quarantine=pa.table({"run_id": ["run1"]}),
        counters=COUNTERS,
    )
    partition.publish(manifest, keep_runs=1)
    assert visible_run(partition) == "run1"


def test_a_manifest_that_cannot_be_read_is_an_error(partition: Partition) -> None:
    put(partition, "run1")
    (partition.scores / MANIFEST_FILE).write_text("{}")
    with pytest.raises(ArtifactError, match="is not a PartitionManifest"):
        partition.current()


def test_what_is_not_published_says_how_it_gets_there(partition: Partition) -> None:
    with pytest.raises(
        ArtifactError,
        match="tickets 2026-11-28 is not published; `nightmill score tickets --date 2026-11-28`",
    ):
        partition.published()
    put(partition, "run1")
    assert partition.published().run == "run1"


@pytest.mark.parametrize("folder", ["scores", "quarantine"])
@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_a_published_file_that_is_damaged_is_told_and_its_run_can_be_scored_again(
    partition: Partition, folder: str, damage: str
) -> None:
    manifest = put(partition, "run1")
    assert partition.intact() == manifest
    path = getattr(partition, folder) / "run=run1" / "part-00001.parquet"
    if damage == "altered":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(ArtifactError, match=r"part-00001\.parquet is missing or altered; `nightm"):
        partition.intact()
    assert partition.reusable("run1") is None
    put(partition, "run1")
    assert partition.intact() == manifest


def test_a_publication_that_died_after_its_manifest_is_settled(
    partition: Partition, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(partition, "run1")
    manifest = stage(partition, "run2")
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "_supersede_others", failing_once(Partition._supersede_others, 0))
        with pytest.raises(KeyboardInterrupt):
            partition.publish(manifest, keep_runs=1)
    globbed = {path.parent.name for path in home.scores("tickets").rglob("*.parquet")}
    assert globbed == {"run=run1", "run=run2"}
    partition.settle(keep_runs=1)
    globbed = {path.parent.name for path in home.scores("tickets").rglob("*.parquet")}
    assert globbed == {"run=run2"}
    assert partition.reusable("run1") is not None


def test_the_run_begun_last_is_found(partition: Partition) -> None:
    assert partition.staged() is None
    for run in ("run2", "run1"):
        stage(partition, run)
        partition.staging(run).begin()
    staged = partition.staged()
    assert staged is not None
    assert staged.folder.name == "run1"
    assert [path.name for path in staged.rejected()] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


def stage_replay(partition: Partition, run: str, *, of: PartitionManifest) -> PartitionManifest:
    replay = Replay(
        base=of.run, rows_replayed=2, rows_scored=1, config_digest="c", contract_version="v"
    )
    return stage(partition, run).model_copy(update={"replays": (*of.replays, replay)})


def test_the_last_replay_of_a_run_answers_for_it(partition: Partition) -> None:
    first = put(partition, "run1", keep_runs=3)
    for run in ("run2", "run3"):
        replayed = stage_replay(partition, run, of=partition.published())
        partition.publish(replayed, keep_runs=3)
    found = partition.reusable("run1")
    assert found is not None
    assert (found.run, found.origin) == ("run3", first.run)
    put(partition, "run4", keep_runs=3)  # with another model, and back again
    assert partition.reusable("run1") == found
    assert partition.reusable("run4") == partition.current()
    partition.publish(found, keep_runs=3)
    assert partition.current() == found

    # What a person has put back on purpose stays.
    assert partition.reusable("run1", replays=False) == first
    partition.publish(first, keep_runs=3)
    assert partition.reusable("run1") == first


def test_a_second_driver_is_kept_off(partition: Partition, home: Home) -> None:
    with partition.lock():
        with (
            pytest.raises(TransientError, match="tickets 2026-11-28: another run is scoring"),
            Partition(home, "tickets", DATE).lock(),
        ):
            pass
        with Partition(home, "tickets", DATE + dt.timedelta(days=1)).lock():
            pass
    with Partition(home, "tickets", DATE).lock():
        pass


HOLDER = """
import datetime as dt, pathlib, sys
from pipeline.publish import Partition
from schemas.home import Home
partition = Partition(Home(pathlib.Path(sys.argv[1])), "tickets", dt.date(2026, 11, 28))
with partition.lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_the_lock_goes_with_its_holder(partition: Partition, home: Home) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TransientError), partition.lock():
            pass
        holder.kill()
        holder.wait()
        with partition.lock():
            pass


def test_rows_to_do_of_a_restricted_shard_are_what_is_reconciled(partition: Partition) -> None:
    chosen = [shard.model_copy(update={"rows": 9, "only_rows": (0, 1, 2)}) for shard in SHARDS]
    assert reconcile(chosen, finished(partition), what="tickets").rows_read == 6


def finished(partition: Partition) -> dict[int, ShardManifest]:
    stage(partition, "run1")
    return partition.staging("run1").finished(SHARDS)


def test_reconciled_counters_are_the_sum(partition: Partition) -> None:
    total = reconcile(SHARDS, finished(partition), what="tickets")
    assert (total.rows_read, total.rows_scored, total.rows_quarantined) == (6, 4, 2)


def test_a_missing_shard_is_not_published(partition: Partition) -> None:
    done = finished(partition)
    del done[1]
    with pytest.raises(ShardError, match=r"^t: shards \[1\] of 2 are not done; run again$"):
        reconcile(SHARDS, done, what="t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counters": Counters(rows_read=3, rows_scored=2)}, "6 rows read, but 4 scored"),
        (
            {"counters": COUNTERS + Counters(windows_made=1)},
            "1 windows made, but 0 aggregated",
        ),
        (
            {"counters": COUNTERS + Counters(rows_read=1, rows_scored=1)},
            r"survey counted 6 rows, 7 were read, 4 \+ 2 written",
        ),
    ],
)
def test_failure_05_counts_that_do_not_add_up_are_not_published(
    partition: Partition, change: dict[str, Any], message: str
) -> None:
    """Lost or doubled rows are an error before anything is published."""
    done = finished(partition)
    done[1] = done[1].model_copy(update=change)
    with pytest.raises(ShardError, match=f"^t: .*{message}"):
        reconcile(SHARDS, done, what="t")


def test_rows_missing_from_the_files_are_not_published(partition: Partition) -> None:
    done = finished(partition)
    short = done[1].scores.model_copy(update={"rows": 1})
    done[1] = done[1].model_copy(update={"scores": short})
    with pytest.raises(ShardError, match=r"counted 6 rows, 6 were read, 3 \+ 2 written"):
        reconcile(SHARDS, done, what="t")
