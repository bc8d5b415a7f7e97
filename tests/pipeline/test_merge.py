"""A replay adds rows to a partition and touches no other: not a byte, not a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.merge import Replayed, merge
from pipeline.publish import reconcile
from pipeline.quarantined import quarantined_rows
from pipeline.staging import Staging
from schemas.errors import ArtifactError, ShardError
from schemas.manifest import Replay
from schemas.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.replay import ReplayPlan
    from schemas.manifest import PartitionManifest

SHORT = Reason.TEXT_TOO_SHORT


def replayed(night: Any, plan: ReplayPlan) -> Replayed:
    staging = Staging(night.partition.staging(plan.run).folder / "replayed")
    done = night.score(plan.plan, plan.shards, staging)
    return Replayed(staging, done, reconcile(plan.shards, done, what="tiny"))


def merged(night: Any, plan: ReplayPlan) -> PartitionManifest:
    return merge(plan, replayed(night, plan), partition=night.partition)


def scored_ids(night: Any) -> list[str]:
    """What a glob over all runs of the date finds."""
    files = sorted(night.partition.scores.glob("run=*/*.parquet"))
    return [name for file in files for name in pq.read_table(file)["record_id"].to_pylist()]


def rejected(night: Any) -> list[tuple[int, str]]:
    rows = quarantined_rows(night.partition.quarantine_files(night.partition.published()))
    return [(row["source_row"], row["reason"]) for row in rows]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_what_can_be_scored_now_is_added_and_leaves_quarantine(night: Any) -> None:
    before = night.partition.published()
    ids = scored_ids(night)
    plan = night.replay()
    manifest = merged(night, plan)
    night.partition.publish(manifest, keep_runs=1)
    assert night.partition.published() == manifest
    assert sorted(scored_ids(night)) == sorted([*ids, "t1", "t3", "t12"])
    assert rejected(night) == [(2, "invalid_json"), (4, "missing_text"), (11, "duplicate_id")]
    assert [part.name for part in manifest.scores] == [
        *[part.name for part in before.scores],
        f"replay-{plan.run[:8]}-00000.parquet",
        f"replay-{plan.run[:8]}-00001.parquet",
    ]
    assert manifest.replays == (
        Replay(
            base=before.run,
            rows_replayed=6,
            rows_scored=3,
            config_digest=plan.plan.config_digest,
            contract_version=plan.plan.task.contract_version,
        ),
    )
    assert (manifest.model, manifest.inputs) == (before.model, before.inputs)
    assert manifest.config_digest == before.config_digest


def test_counts_are_of_where_the_rows_are_now(night: Any) -> None:
    before = night.partition.published().counters
    after = merged(night, night.replay()).counters
    assert (before.rows_read, before.rows_scored, before.rows_quarantined) == (25, 19, 6)
    assert (after.rows_read, after.rows_scored, after.rows_quarantined) == (25, 22, 3)
    assert after.quarantined_by_reason == {
        "duplicate_id": 1,
        "invalid_json": 1,
        "missing_text": 1,
    }
    assert after.texts_inferred == before.texts_inferred + 3


def test_the_files_of_the_run_before_keep_their_bytes_and_share_their_place(night: Any) -> None:
    before = night.partition.published()
    old = bytes_of(night.partition.scores / f"run={before.run}")
    manifest = merged(night, night.replay())
    new = night.partition.staging(manifest.run).scores
    assert {name: content for name, content in bytes_of(new).items() if name in old} == old
    assert all((new / name).stat().st_nlink == 2 for name in old)


def test_quarantine_without_a_replayed_row_keeps_its_bytes(night: Any) -> None:
    before = night.partition.published()
    manifest = merged(night, night.replay(Reason.MISSING_TEXT, SHORT))
    assert manifest.quarantine[0] != before.quarantine[0]
    assert manifest.quarantine[2] == before.quarantine[2]
    one = merged(night, night.replay(Reason.MISSING_TEXT))  # scores nothing
    assert one.quarantine[1:] == before.quarantine[1:]


def test_a_row_still_rejected_tells_its_new_reason_and_contract(night: Any) -> None:
    plan = night.replay(SHORT, min_chars=3)  # still too short, by another contract
    manifest = merged(night, plan)
    staging = night.partition.staging(manifest.run)
    rows = {row["source_row"]: row for row in quarantined_rows(staging.rejected())}
    assert list(rows) == [1, 2, 3, 4, 11, 12]
    assert rows[1]["detail"] == "got 2 characters, at least 3"
    assert rows[1]["contract_version"] == plan.plan.task.contract_version
    assert rows[4]["contract_version"] != plan.plan.task.contract_version


def test_a_replay_can_follow_a_replay(night: Any) -> None:
    first = merged(night, night.replay(SHORT, min_chars=2))
    night.partition.publish(first, keep_runs=1)
    ids = scored_ids(night)
    assert rejected(night) == [(2, "invalid_json"), (4, "missing_text"), (11, "duplicate_id")]
    plan = night.replay(min_chars=1, id_column=None)  # of rows without an id none is repeated
    second = merged(night, plan)
    night.partition.publish(second, keep_runs=1)
    assert sorted(scored_ids(night)) == sorted([*ids, "incoming/tiny/date=2026-11-28/a.jsonl:11"])
    assert second.origin == first.replays[0].base
    assert [replay.base for replay in second.replays] == [second.origin, first.run]


def test_a_merge_that_died_is_done_again_with_the_same_bytes(night: Any) -> None:
    plan = night.replay()
    work = replayed(night, plan)
    first = merge(plan, work, partition=night.partition)
    staging = night.partition.staging(plan.run)
    before = bytes_of(staging.scores) | bytes_of(staging.quarantine)
    next(staging.scores.iterdir()).unlink()
    (staging.quarantine / "left-over.parquet").write_bytes(b"torn")
    assert merge(plan, work, partition=night.partition) == first
    assert bytes_of(staging.scores) | bytes_of(staging.quarantine) == before


def test_a_publication_that_died_half_way_is_finished(night: Any) -> None:
    """Of two links to one file a rename leaves both; the folder must be empty all the same."""
    plan = night.replay()
    work = replayed(night, plan)
    manifest = merge(plan, work, partition=night.partition)
    staging = night.partition.staging(plan.run)
    final = night.partition.scores / f"run={plan.run}"
    staging.scores.rename(final)  # and then the driver dies
    assert merge(plan, work, partition=night.partition) == manifest
    night.partition.publish(manifest, keep_runs=1)
    assert night.partition.published() == manifest
    assert len(scored_ids(night)) == 22


def test_pruning_the_run_before_leaves_linked_files_whole(night: Any) -> None:
    base = night.partition.published()
    night.partition.publish(merged(night, night.replay()), keep_runs=0)
    superseded = night.home.superseded("tiny") / "date=2026-11-28" / "scores"
    assert list(superseded.iterdir()) == []
    assert len(scored_ids(night)) == 22
    found = night.partition.reusable(base.run)
    assert found == night.partition.published()


def test_the_run_before_a_replay_does_not_come_back_in_its_place(night: Any) -> None:
    """Asked for the run that was replayed, also after a roll-back, the replayed one answers."""
    base = night.partition.published()
    replayed_run = merged(night, night.replay())
    night.partition.publish(replayed_run, keep_runs=2)
    assert night.partition.reusable(base.run) == replayed_run
    night.publish(night.plan(min_chars=6))
    assert night.partition.reusable(base.run) == replayed_run
    night.partition.publish(replayed_run, keep_runs=2)
    assert len(scored_ids(night)) == 22


@pytest.mark.parametrize("folder", ["scores", "quarantine"])
def test_files_of_another_form_are_not_mixed(night: Any, folder: str) -> None:
    plan = night.replay()
    work = replayed(night, plan)
    file = getattr(work.staging, folder) / "part-00000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("new", pa.nulls(len(table), pa.string())), file)
    with pytest.raises(ArtifactError, match=r"has other columns than are written now; `nightmill"):
        merge(plan, work, partition=night.partition)


def test_a_lost_row_is_an_error_before_anything_is_published(night: Any) -> None:
    plan = night.replay()
    work = replayed(night, plan)
    shard = work.shards[0]
    short = shard.model_copy(update={"scores": shard.scores.model_copy(update={"rows": 1})})
    lossy = Replayed(work.staging, {**work.shards, 0: short}, work.counters)
    with pytest.raises(ShardError, match=r"22 \+ 3 rows expected after the replay, 21 \+ 3 writt"):
        merge(plan, lossy, partition=night.partition)
