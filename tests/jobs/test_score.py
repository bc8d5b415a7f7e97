"""The nightly job on Ray: exactly once, the same bytes, one answer for a text anywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import date as Date
from types import SimpleNamespace

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipeline.outcome_report import read_scores
from pipeline.publish import Partition
from pipeline.quarantined import quarantined_rows
from schemas.fingerprint import digest_of_file
from schemas.home import Home

pytestmark = pytest.mark.slow


def score(home, day, *overrides, through=None):
    arguments = ["score", "tiny", "--date", day, *overrides, "--home", str(home.root)]
    if through:
        arguments += ["--through", through]
    result = home.root / "result.json"
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "jobs", *arguments, "--result", str(result)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    answer = json.loads(result.read_text()) if result.exists() else None
    return SimpleNamespace(code=done.returncode, log=done.stderr, answer=answer)


def files_of(home, day):
    """Digest of every published file of a date but the log of publications."""
    folders = [home.scores("tiny") / f"date={day}", home.quarantine("tiny") / f"date={day}"]
    return {
        str(path.relative_to(home.root)): digest_of_file(path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "publications.jsonl"
    }


def scores_of(home, day):
    manifest = Partition(home, "tiny", Date.fromisoformat(day)).current()
    return read_scores(home, manifest)


def another_home(tmp_path, tiny_home):
    """A second home with the same task file."""
    other = Home(tmp_path / "other")
    other.tasks.mkdir(parents=True)
    (other.tasks / "tiny.yaml").write_text((tiny_home.tasks / "tiny.yaml").read_text())
    return other


def test_a_night_from_input_to_readers(tiny_home, tiny_bundle, write_night):
    records = write_night(tiny_home, "2026-11-20", rows=44)
    first = score(tiny_home, "2026-11-20")
    assert first.code == 0, first.log
    night = first.answer["partitions"]["2026-11-20"]
    assert (night["rows_read"], night["rows_scored"], night["rows_quarantined"]) == (44, 41, 3)
    # Who collects the log finds JSON, but for what Ray's C++ core writes by itself.
    foreign = [line for line in first.log.splitlines() if not line.startswith(("{", "["))]
    assert foreign == []
    manifest = Partition(tiny_home, "tiny", Date(2026, 11, 20)).current()
    assert manifest.counters.quarantined_by_reason == {
        "duplicate_id": 1,
        "invalid_json": 1,
        "missing_text": 1,
    }
    # One text stood there twice and was inferred once within its shard or once in each of two.
    assert manifest.counters.texts_inferred in {40, 41}

    table = scores_of(tiny_home, "2026-11-20")
    expected_ids = [r["ticket_id"] for r in records if not r["ticket_id"].endswith("empty")]
    assert table["record_id"].to_pylist() == list(dict.fromkeys(expected_ids))
    assert set(table["run_id"].to_pylist()) == {manifest.run}
    assert set(table["model_digest"].to_pylist()) == {manifest.model.digest}

    # Analysts' tools read the same numbers.
    glob = str(tiny_home.scores("tiny") / "date=*" / "run=*" / "*.parquet")
    by_duckdb = duckdb.sql(
        f"select record_id, queue, queue_confidence from '{glob}' order by 1"
    ).df()
    by_pandas = pd.concat(
        pd.read_parquet(path)
        for path in sorted((tiny_home.scores("tiny") / "date=2026-11-20").rglob("*.parquet"))
    ).sort_values("record_id")
    assert by_duckdb["queue"].tolist() == by_pandas["queue"].tolist()
    assert by_duckdb["queue_confidence"].tolist() == by_pandas["queue_confidence"].tolist()

    # A notebook gets the nightly job's very numbers.
    from pipeline.engines.pyfunc import PyfuncModel

    model = PyfuncModel()
    model.load_context(context=SimpleNamespace(artifacts={"bundle": str(tiny_bundle)}))
    frame = pd.DataFrame(records).drop_duplicates("ticket_id")
    answers = model.predict(None, frame).set_index("record_id")
    for row in table.to_pylist():
        assert answers.loc[row["record_id"], "queue_scores"] == row["queue_scores"]
        assert answers.loc[row["record_id"], "topics"] == row["topics"]
        assert answers.loc[row["record_id"], "decision"] == row["decision"]

    # A second run does no inference and says so.
    before = files_of(tiny_home, "2026-11-20")
    second = score(tiny_home, "2026-11-20")
    assert second.code == 0
    assert "already published, no inference" in second.log
    assert second.answer["partitions"]["2026-11-20"]["reused"] is True
    assert files_of(tiny_home, "2026-11-20") == before
    assert not list(tiny_home.staging("tiny").glob("date=*/**/*"))


def test_failure_10_25_47_shard_size_does_not_change_a_score(tiny_home, tmp_path, write_night):
    """Neither neighbours nor places change a row's answer."""
    day = "2026-11-20"
    write_night(tiny_home, day, rows=30)
    other = another_home(tmp_path, tiny_home)
    write_night(other, day, rows=30)
    assert score(tiny_home, day, "score.rows_per_shard=3").code == 0
    assert score(other, day, "score.rows_per_shard=100", "score.workers=1").code == 0
    columns = ["record_id", "queue", "queue_scores", "topics", "topics_scores", "text_hash"]
    mine, theirs = (scores_of(home, day).select(columns).to_pylist() for home in (tiny_home, other))
    assert mine == theirs
    assert len(mine) == 27


def test_one_broken_date_leaves_the_others_published(tiny_home, write_night):
    write_night(tiny_home, "2026-11-20", rows=20)
    write_night(tiny_home, "2026-11-22", rows=20)  # nothing came on the 21st
    done = score(tiny_home, "2026-11-20", through="2026-11-22")
    assert done.code == 3
    assert "2026-11-21" in done.log
    for day in ("2026-11-20", "2026-11-22"):
        assert len(scores_of(tiny_home, day)) == 17


def test_too_many_rejects_publish_nothing(tiny_home, write_night):
    day = "2026-11-20"
    write_night(tiny_home, day, rows=20)
    stop = "contract.stop_on=[invalid_json]"
    done = score(tiny_home, day, "contract.max_reject_fraction=0.1", stop)
    assert done.code == 3
    assert "3 of 20 rows rejected (15.0%, allowed 10.0%): " in done.log
    assert f"1 missing_text (such as {day}-empty)" in done.log
    assert f"rows rejected as invalid_json: 1 (such as incoming/tiny/date={day}/r" in done.log
    assert f"`nightmill quarantine show tiny --date {day} --staged` shows the rows" in done.log
    partition = Partition(tiny_home, "tiny", Date.fromisoformat(day))
    assert partition.current() is None
    assert len(list(quarantined_rows(partition.staged().rejected()))) == 3


@pytest.mark.parametrize("job", ["score", "replay"])
def test_a_driver_that_is_kept_off_leaves_the_holder_its_copies(
    tiny_home, write_night, nightmill, job
):
    day = "2026-11-20"
    write_night(tiny_home, day, rows=20)
    partition = Partition(tiny_home, "tiny", Date.fromisoformat(day))
    copy = partition.spool / "of-the-holder"
    with partition.lock():
        copy.parent.mkdir(parents=True)
        copy.write_text("rows")
        kept_off = nightmill(job, "tiny", "--date", day, home=tiny_home)
    assert kept_off.exit_code == 75
    assert "another run is scoring this partition" in kept_off.stderr
    assert copy.read_text() == "rows"


@pytest.mark.parametrize("shards_before_the_kill", [1, 12])
def test_failure_06_07_08_a_killed_run_is_finished_byte_for_byte(
    tiny_home, tmp_path, shards_before_the_kill, write_night
):
    """kill -9 in the middle, run again, compare with a run left in peace."""
    day, small = "2026-11-20", "score.rows_per_shard=4"
    other = another_home(tmp_path, tiny_home)
    for home in (tiny_home, other):
        write_night(home, day, rows=120)
    assert score(other, day, small).code == 0

    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jobs",
            "score",
            "tiny",
            "--date",
            day,
            small,
            "--home",
            str(tiny_home.root),
        ],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(list(tiny_home.staging("tiny").rglob("shards/*.json"))) < shards_before_the_kill:
        assert process.poll() is None
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert Partition(tiny_home, "tiny", Date.fromisoformat(day)).current() is None

    resumed = score(tiny_home, day, small)
    assert resumed.code == 0, resumed.log
    assert "resuming:" in resumed.log
    assert files_of(tiny_home, day) == files_of(other, day)
    publication = json.loads(
        (tiny_home.scores("tiny") / f"date={day}" / "publications.jsonl").read_text()
    )
    assert publication["shards_scored"] <= 30 - shards_before_the_kill


def test_parquet_files_have_the_declared_schema(tiny_home, tiny_task, write_night):
    from schemas.records import quarantine_schema, scores_schema

    day = "2026-11-20"
    write_night(tiny_home, day, rows=12)
    assert score(tiny_home, day).code == 0
    manifest = Partition(tiny_home, "tiny", Date.fromisoformat(day)).current()
    scores = tiny_home.scores("tiny") / f"date={day}" / f"run={manifest.run}"
    quarantine = tiny_home.quarantine("tiny") / f"date={day}" / f"run={manifest.run}"
    for part in manifest.scores:
        assert pq.ParquetFile(scores / part.name).schema_arrow.equals(
            scores_schema(tiny_task.heads)
        )
    rejected = [pq.ParquetFile(quarantine / part.name) for part in manifest.quarantine]
    assert all(file.schema_arrow.equals(quarantine_schema()) for file in rejected)
    raw = [row["raw"] for file in rejected for row in file.read().to_pylist()]
    assert b'{"ticket_id": "cut o' in raw
