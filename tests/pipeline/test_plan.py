"""The fingerprint says that two runs would give the same bytes, and only then is it equal."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.bundle import load_spec
from pipeline.plan import Plan, plan_partition
from pipeline.publish import reconcile
from schemas.errors import DataContractError
from schemas.home import Home
from schemas.manifest import CascadeRef, Counters, ModelRef, PartFile, ShardManifest
from schemas.task import CacheConfig, QuarantineConfig

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bundle import BundleSpec
    from schemas.task import TaskConfig

DATE = dt.date(2026, 11, 28)
MODEL = ModelRef(name="tiny", version="1", digest="abc")


@pytest.fixture
def spec(tiny_bundle: Path) -> BundleSpec:
    return load_spec(tiny_bundle)


def write_input(
    home: Home, *, day: dt.date = DATE, body: str = "late parcel", rows: int = 25
) -> None:
    folder = home.root / "incoming" / "tiny" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"ticket_id": f"t{n}", "subject": "help", "body": body}) for n in range(rows)
    ]
    (folder / "part.jsonl").write_text("\n".join(lines) + "\n")


def make_plan(
    home: Home, task: TaskConfig, spec: BundleSpec, *, day: dt.date = DATE, model: ModelRef = MODEL
) -> Plan:
    return plan_partition(
        task, day, home=home, model=model, cleaner_version=spec.cleaner_version,
        spool=home.root / "spool",
    )  # fmt: skip


def changed(task: TaskConfig, section: str, **changes: Any) -> TaskConfig:
    part = getattr(task, section).model_copy(update=changes)
    return task.model_copy(update={section: part})


def test_a_plan_covers_all_rows_in_bounded_shards(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    write_input(home)
    plan = make_plan(home, tiny_task, spec)
    assert [shard.rows for shard in plan.survey.shards] == [10, 10, 5]
    assert plan.run == plan.fingerprint[:16]
    assert plan.cleaner_version == spec.cleaner_version


def test_the_same_input_model_and_settings_have_the_same_fingerprint_in_any_home(
    home: Home, tmp_path: Path, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    other = Home(tmp_path / "elsewhere")
    write_input(home)
    write_input(other)
    plans = [make_plan(place, tiny_task, spec) for place in (home, other, home)]
    assert len({plan.fingerprint for plan in plans}) == 1


def test_what_cannot_change_a_byte_leaves_the_fingerprint(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    write_input(home)
    same = [
        tiny_task,
        changed(tiny_task, "score", keep_runs=7, workers=3, model="models:/tiny/1"),
        changed(tiny_task, "score", no_progress_timeout_s=5),
        changed(tiny_task, "train", epochs=50, seed=99),
        changed(tiny_task, "compress", gate_texts=99),
        changed(tiny_task, "score", max_batch_tokens=4096),  # a CPU has no such batches
        changed(tiny_task, "data", labelled="elsewhere/*.csv"),
        changed(tiny_task, "data", incoming="incoming/tiny/date={date}/part.jsonl"),
        tiny_task.model_copy(update={"description": "another", "schedule": None}),
    ]
    assert len({make_plan(home, task, spec).fingerprint for task in same}) == 1


def test_what_can_change_a_byte_changes_the_fingerprint(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    """A done-marker that did not say what was done would skip work that is not."""
    write_input(home)
    queue = tiny_task.heads["queue"].model_copy(update={"review_below": 0.9})
    tasks = [
        tiny_task,
        changed(tiny_task, "score", rows_per_shard=11),
        changed(tiny_task, "score", device="gpu"),
        changed(tiny_task, "score", device="gpu", max_batch_tokens=4096),
        changed(tiny_task, "window", max_chars=999),
        changed(tiny_task, "clean", steps=("unicode",)),
        changed(tiny_task, "contract", max_text_chars=99),
        tiny_task.model_copy(update={"quarantine": QuarantineConfig(raw="hash")}),
        changed(tiny_task, "data", id_column=None),
        tiny_task.model_copy(update={"heads": {**tiny_task.heads, "queue": queue}}),
    ]
    plans = [make_plan(home, task, spec) for task in tasks]
    for update in ({"digest": "abd"}, {"version": "2"}, {"name": "other"}):
        plans.append(make_plan(home, tiny_task, spec, model=MODEL.model_copy(update=update)))
    older = spec.model_copy(update={"cleaner_version": "0"})
    plans.append(make_plan(home, tiny_task, older))
    assert len({plan.fingerprint for plan in plans}) == len(plans)


def test_input_bytes_and_date_change_the_fingerprint(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    write_input(home)
    first = make_plan(home, tiny_task, spec).fingerprint
    write_input(home, body="late parcek")
    second = make_plan(home, tiny_task, spec).fingerprint
    next_day = DATE + dt.timedelta(days=1)
    write_input(home, day=next_day)
    third = make_plan(home, tiny_task, spec, day=next_day).fingerprint
    write_input(home)
    assert len({first, second, third}) == 3
    assert make_plan(home, tiny_task, spec).fingerprint == first


def test_no_input_and_too_few_rows_are_contract_errors(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    with pytest.raises(DataContractError, match="no input for date 2026-11-28"):
        make_plan(home, tiny_task, spec)
    write_input(home, rows=2)
    task = changed(tiny_task, "contract", min_rows=3)
    with pytest.raises(DataContractError, match=r"tiny 2026-11-28: 2 rows in 1 files, .* least 3;"):
        make_plan(home, task, spec)


def done_shards(plan: Plan) -> dict[int, ShardManifest]:
    return {
        shard.index: ShardManifest(
            shard=shard,
            counters=Counters(rows_read=shard.rows, rows_scored=shard.rows),
            scores=PartFile(name=f"s{shard.index}", rows=shard.rows, sha256="a"),
            quarantine=PartFile(name=f"q{shard.index}", rows=0, sha256="b"),
        )
        for shard in plan.survey.shards
    }


def test_the_manifest_lists_parts_in_the_order_of_shards(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    """FAILURES row 10: shards come back in any order."""
    write_input(home)
    plan = make_plan(home, tiny_task, spec)
    done = dict(reversed(done_shards(plan).items()))
    counters = reconcile(plan.survey.shards, done, what="tiny")
    manifest = plan.manifest(done, counters)
    assert [part.name for part in manifest.scores] == ["s0", "s1", "s2"]
    assert [part.name for part in manifest.quarantine] == ["q0", "q1", "q2"]
    assert (manifest.run, manifest.fingerprint) == (plan.run, plan.fingerprint)
    assert manifest.counters.rows_scored == 25
    assert manifest.inputs[0].name == "incoming/tiny/date=2026-11-28/part.jsonl"


def test_a_cascade_is_part_of_the_fingerprint_and_of_the_manifest(
    home: Home, tiny_task: TaskConfig, spec: BundleSpec
) -> None:
    write_input(home)
    alone = make_plan(home, tiny_task, spec)
    small = ModelRef(name="tiny", version="2", digest="def")
    thresholds = {"queue": 0.9, "topics": 0.8}
    both = dataclasses.replace(alone, cascade=CascadeRef(small=small, thresholds=thresholds))
    looser = dataclasses.replace(
        alone, cascade=CascadeRef(small=small, thresholds=thresholds | {"queue": 0.8})
    )
    assert len({plan.fingerprint for plan in (alone, both, looser)}) == 3
    cache = changed(tiny_task, "score", cache=CacheConfig(enabled=True))
    assert make_plan(home, cache, spec).fingerprint == alone.fingerprint
    assert both.cascade is not None
    done = {
        shard.index: ShardManifest(
            shard=shard,
            counters=Counters(),
            scores=PartFile(name="a", rows=0, sha256="a"),
            quarantine=PartFile(name="a", rows=0, sha256="a"),
        )
        for shard in both.survey.shards
    }
    assert both.manifest(done, Counters()).cascade == both.cascade
    assert alone.manifest(done, Counters()).cascade is None
