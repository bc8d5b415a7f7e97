"""`nightmill replay`: only the rejected rows run again, the published ones keep their bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date as Date
from types import SimpleNamespace

import duckdb
import pandas as pd
import pytest

from pipeline.publish import Partition
from schemas.fingerprint import digest_of_file
from schemas.home import Home

pytestmark = pytest.mark.slow

DAY = "2026-11-20"
TIGHT = "contract.max_text_chars=60"  # rejects most of the longer rows of a night


@pytest.fixture
def in_process(monkeypatch):
    """Workers in this process, one shard after the other: Ray is not what is tested."""
    import jobs.ray_session
    import jobs.scoring

    def score_shards(work, *, bundle, task, model, cleaner_version, workers, saving, plans):
        worker = jobs.scoring.ShardWorker(bundle, task, model, cleaner_version, saving, plans)
        for item in work:
            yield worker(item.to_row())

    monkeypatch.setattr(jobs.scoring, "score_shards", score_shards)
    monkeypatch.setattr(jobs.ray_session, "ray_session", lambda **_: nullcontext())


@pytest.fixture
def run(nightmill, tiny_home, tmp_path):
    """Runs a job on the tiny task; its result is in `answer`, its last line of log in `last`."""

    def call(job, *arguments, day=DAY, home=tiny_home):
        result = tmp_path / "result.json"
        result.unlink(missing_ok=True)
        done = nightmill(job, "tiny", "--date", day, *arguments, "--result", str(result), home=home)
        return SimpleNamespace(
            code=done.exit_code,
            log=done.stderr,
            out=done.stdout,
            answer=json.loads(result.read_text()) if result.exists() else None,
        )

    return call


def partition(home, day=DAY):
    return Partition(home, "tiny", Date.fromisoformat(day))


def files_of(home):
    """Digest of every published file of the date but the log of publications, by its path."""
    folders = [partition(home).scores, partition(home).quarantine]
    return {
        str(path.relative_to(home.root)): digest_of_file(path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "publications.jsonl"
    }


def by_name(files):
    return {path.rpartition("/")[2]: digest for path, digest in files.items() if "scores/" in path}


def globbed(home):
    glob = str(home.scores("tiny") / "date=*" / "run=*" / "*.parquet")
    return duckdb.sql(f"select * from '{glob}'").df()


def scored_with_a_tight_contract(run, tiny_home, write_night):
    records = write_night(tiny_home, DAY, rows=34)
    first = run("score", TIGHT, "contract.max_reject_fraction=1.0")
    assert first.code == 0, first.log
    return records, first.answer["partitions"][DAY]


def test_a_relaxed_contract_adds_rows_and_leaves_the_others(
    run, tiny_home, tmp_path, write_night, in_process
):
    records, before = scored_with_a_tight_contract(run, tiny_home, write_night)
    old = files_of(tiny_home)
    done = run("replay", "--reason", "text_too_long")
    assert done.code == 0, done.log
    night = done.answer["partitions"][DAY]
    assert night["published"] is True
    assert night["base"] == before["run"]
    assert night["rows_scored"] == night["rows_replayed"] > 10
    assert night["quarantined_by_reason"] == {
        "duplicate_id": 1,
        "invalid_json": 1,
        "missing_text": 1,
    }
    manifest = partition(tiny_home).published()
    counters = manifest.counters
    assert (counters.rows_read, counters.rows_scored, counters.rows_quarantined) == (34, 31, 3)
    assert counters.rows_scored == before["rows_scored"] + night["rows_scored"]
    assert manifest.replays[0].reasons == ("text_too_long",)

    new = files_of(tiny_home)
    untouched = {name: d for name, d in by_name(old).items() if name.startswith("part-")}
    assert untouched
    assert by_name(new).items() >= untouched.items()

    # Analysts' globs find each row once, with the replay's run in the rows it added.
    by_duckdb = globbed(tiny_home)
    assert sorted(by_duckdb["record_id"]) == sorted(
        {r["ticket_id"] for r in records if r["body"].strip()}
    )
    runs = by_duckdb["run_id"].value_counts().to_dict()
    assert runs == {manifest.run: night["rows_scored"], before["run"]: before["rows_scored"]}
    by_pandas = pd.concat(
        pd.read_parquet(p) for p in partition(tiny_home).scores.rglob("*.parquet")
    )
    assert len(by_pandas) == 31

    # The merged rows are those that one run with the relaxed contract scores.
    other = Home(tmp_path / "other")
    other.tasks.mkdir(parents=True)
    (other.tasks / "tiny.yaml").write_text((tiny_home.tasks / "tiny.yaml").read_text())
    write_night(other, DAY, rows=34)
    assert run("score", home=other).code == 0
    columns = ["record_id", "queue", "queue_confidence", "text_hash", "source_row", "decision"]
    mine, theirs = (
        globbed(home)[columns].sort_values("record_id").reset_index(drop=True)
        for home in (tiny_home, other)
    )
    pd.testing.assert_frame_equal(mine, theirs)


def test_a_second_replay_scores_nothing_and_publishes_nothing(
    run, tiny_home, write_night, in_process
):
    scored_with_a_tight_contract(run, tiny_home, write_night)
    assert run("replay").answer["partitions"][DAY]["published"] is True
    before = files_of(tiny_home)
    publications = partition(tiny_home).publications()
    again = run("replay")
    assert again.code == 0
    assert again.answer["partitions"][DAY]["published"] is False
    assert "of 3 rows to replay none can be scored, nothing is published" in again.log
    assert files_of(tiny_home) == before
    assert partition(tiny_home).publications() == publications
    assert partition(tiny_home).staged() is None


def test_score_does_not_undo_a_replay(run, tiny_home, write_night, in_process):
    _, base = scored_with_a_tight_contract(run, tiny_home, write_night)
    replayed = run("replay").answer["partitions"][DAY]
    before = files_of(tiny_home)
    same = run("score", TIGHT, "contract.max_reject_fraction=1.0")
    assert same.code == 0, same.log
    assert f"rows of run {base['run']} were replayed since, which stays" in same.log
    assert same.answer["partitions"][DAY]["run"] == replayed["run"]
    assert same.answer["partitions"][DAY]["rows_scored"] == 31
    assert files_of(tiny_home) == before

    # With the fix in the settings all rows are scored by it: another run, as many rows.
    fixed = run("score").answer["partitions"][DAY]
    assert fixed["run"] not in {base["run"], replayed["run"]}
    assert fixed["rows_scored"] == 31
    # And back again, without inference, to what was replayed, not to what it began from.
    back = run("score", TIGHT, "contract.max_reject_fraction=1.0").answer["partitions"][DAY]
    assert (back["run"], back["reused"]) == (replayed["run"], True)
    assert files_of(tiny_home) == before


def test_a_replay_is_taken_out_when_asked_for(run, tiny_home, write_night, in_process):
    _, base = scored_with_a_tight_contract(run, tiny_home, write_night)
    before = files_of(tiny_home)
    replayed = run("replay").answer["partitions"][DAY]
    settings = (TIGHT, "contract.max_reject_fraction=1.0")
    undone = run("score", "--without-replays", *settings).answer["partitions"][DAY]
    assert (undone["run"], undone["reused"]) == (base["run"], True)
    assert files_of(tiny_home) == before
    # A plain run later on does not bring back what was taken out; another replay does.
    assert run("score", *settings).answer["partitions"][DAY]["run"] == base["run"]
    assert run("replay").answer["partitions"][DAY]["run"] == replayed["run"]


def test_stops_hold_for_the_merged_partition(run, tiny_home, write_night, in_process):
    scored_with_a_tight_contract(run, tiny_home, write_night)
    before = files_of(tiny_home)
    refused = run("replay", "contract.max_reject_fraction=0.01")
    assert refused.code == 3
    assert "3 of 34 rows rejected (8.8%, allowed 1.0%)" in refused.log
    assert "1 duplicate_id (such as 2026-11-20-1)" in refused.log
    assert "1 invalid_json (such as incoming/tiny/date=2026-11-20/rows.jsonl:33)" in refused.log
    assert files_of(tiny_home) == before
    assert partition(tiny_home).staged() is None


def test_another_input_is_refused(run, tiny_home, write_night, in_process):
    scored_with_a_tight_contract(run, tiny_home, write_night)
    before = files_of(tiny_home)
    write_night(tiny_home, DAY, rows=35)
    refused = run("replay")
    assert refused.code == 3
    assert "the input is not what run" in refused.log
    assert f"`nightmill score tiny --date {DAY}`" in refused.log
    assert files_of(tiny_home) == before


def test_another_model_is_refused(run, tiny_home, tiny_bundle, tmp_path, write_night, in_process):
    import shutil

    scored_with_a_tight_contract(run, tiny_home, write_night)
    shutil.copytree(tiny_bundle, tmp_path / "another")
    refused = run("replay", f"score.model=path:{tmp_path / 'another'}")
    assert refused.code == 4
    assert "the partition was scored by" in refused.log


def test_a_date_that_is_not_published_fails_after_the_others(
    run, tiny_home, write_night, in_process
):
    scored_with_a_tight_contract(run, tiny_home, write_night)
    done = run("replay", "--through", "2026-11-21")
    assert done.code == 4
    assert "tiny 2026-11-21 is not published; `nightmill score tiny --date 2026-11-21`" in done.log
    assert partition(tiny_home).published().counters.rows_scored == 31


def test_an_unknown_reason_is_named(run, tiny_home):
    refused = run("replay", "--reason", "text_to_long")
    assert refused.code == 2
    assert "unknown reason 'text_to_long' (did you mean 'text_too_long'?)" in refused.log


def test_report_tells_of_a_replay(run, tiny_home, write_night, in_process):
    _, before = scored_with_a_tight_contract(run, tiny_home, write_night)
    scored = run("replay").answer["partitions"][DAY]["rows_scored"]
    report = run("report")
    assert report.code == 0, report.log
    assert f"rows were added to run {before['run']}" in report.out
    assert report.answer["rows"][DAY]["replayed"] == scored


DRIVER = """
import os, signal, sys
import jobs.scoring
from contextlib import nullcontext
import jobs.ray_session
from jobs.__main__ import main

shards_before_the_kill, step = int(sys.argv.pop(1)), sys.argv.pop(1)

def score_shards(work, *, bundle, task, model, cleaner_version, workers, saving, plans):
    worker = jobs.scoring.ShardWorker(bundle, task, model, cleaner_version, saving, plans)
    for number, item in enumerate(work):
        if number == shards_before_the_kill:
            os.kill(os.getpid(), signal.SIGKILL)
        yield worker(item.to_row())

jobs.scoring.score_shards = score_shards
jobs.ray_session.ray_session = lambda **_: nullcontext()
if step:
    from pipeline.publish import Partition
    from schemas.manifest import PartitionManifest
    die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    place = PartitionManifest if step == "write" else Partition
    setattr(place, step, die)
main()
"""


@pytest.mark.parametrize(
    ("shards", "step"),
    [(0, ""), (2, ""), (99, "publish"), (99, "write"), (99, "_log"), (99, "_supersede_others")],
)
def test_a_killed_replay_is_finished_byte_for_byte(
    run, tiny_home, tmp_path, write_night, in_process, shards, step
):
    """FAILURES row 6: killed at any step and run again gives what an undisturbed replay gives."""
    scored_with_a_tight_contract(run, tiny_home, write_night)
    published = files_of(tiny_home)
    other = Home(tmp_path / "other")
    subprocess.run(["cp", "-a", str(tiny_home.root), str(other.root)], check=True)
    assert run("replay", home=other).code == 0

    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, str(shards), step, "replay", "tiny", "--date", DAY,
         "--home", str(tiny_home.root)],
        capture_output=True, timeout=240,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if step not in {"_log", "_supersede_others"}:
        assert partition(tiny_home).published().replays == ()
        assert files_of(tiny_home).items() >= published.items()
    resumed = run("replay")
    assert resumed.code == 0, resumed.log
    assert files_of(tiny_home) == files_of(other)
    assert globbed(tiny_home)["record_id"].is_unique


def test_on_ray_as_well_and_killed_there(tiny_home, tmp_path, write_night):
    """The real workers: score, kill -9 of driver and workers while they replay, replay again."""
    write_night(tiny_home, DAY, rows=304)
    small = "score.rows_per_shard=10"
    command = [sys.executable, "-m", "jobs"]
    place = ["tiny", "--date", DAY, small, "--home", str(tiny_home.root)]
    lax = ["contract.max_text_chars=20", "contract.max_reject_fraction=1.0"]
    scored = subprocess.run([*command, "score", *place, *lax], capture_output=True, text=True)
    assert scored.returncode == 0, scored.stderr
    other = Home(tmp_path / "other")
    subprocess.run(["cp", "-a", str(tiny_home.root), str(other.root)], check=True)

    process = subprocess.Popen(
        [*command, "replay", *place], stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 200
    while len(list(tiny_home.staging("tiny").rglob("replayed/shards/*.json"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        os.sched_yield()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert partition(tiny_home).published().replays == ()
    for home in (tiny_home, other):
        place[-1] = str(home.root)
        done = subprocess.run([*command, "replay", *place], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert ("resuming:" in done.stderr) == (home is tiny_home)
    assert partition(tiny_home).published().counters.rows_quarantined == 3
    assert files_of(tiny_home) == files_of(other)
