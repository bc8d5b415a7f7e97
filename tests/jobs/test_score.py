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
import yaml

from pipeline.outcome_report import read_scores
from pipeline.publish import Partition
from schemas.fingerprint import digest_of_file
from schemas.home import Home

pytestmark = pytest.mark.slow

LARGE, SMALL, TINY = "2026-11-20", "2026-11-22", "2026-11-23"  # nothing came on the 21st
FOUR_A_SHARD = "score.rows_per_shard=4"


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


@pytest.fixture(scope="module")
def nights(tmp_path_factory, tiny_task, tiny_bundle, write_night):
    """What one run over nights of 120, 30 and 12 rows and a day without any said and left behind.

    To be read only: one start of Ray serves all that ask about a run which was left in peace.
    """
    home = Home(tmp_path_factory.mktemp("nights") / "home")
    raw = tiny_task.model_dump(mode="json")
    raw["score"] |= {"model": f"path:{tiny_bundle}", "workers": 2}
    home.tasks.mkdir(parents=True)
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    for day, rows in ((LARGE, 120), (SMALL, 30), (TINY, 12)):
        write_night(home, day, rows=rows)
    return SimpleNamespace(home=home, done=score(home, LARGE, FOUR_A_SHARD, through=TINY))


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


def test_failure_10_25_47_shard_size_does_not_change_a_score(tiny_home, nights, write_night):
    """Neither neighbours nor places change a row's answer."""
    write_night(tiny_home, SMALL, rows=30)
    assert score(tiny_home, SMALL, "score.rows_per_shard=100", "score.workers=1").code == 0
    columns = ["record_id", "queue", "queue_scores", "topics", "topics_scores", "text_hash"]
    one, many = (
        scores_of(home, SMALL).select(columns).to_pylist() for home in (tiny_home, nights.home)
    )
    assert one == many
    assert len(one) == 27


def test_one_broken_date_leaves_the_others_published(nights):
    assert nights.done.code == 3
    assert "2026-11-21" in nights.done.log
    for day, rows in ((LARGE, 117), (SMALL, 27), (TINY, 9)):
        assert len(scores_of(nights.home, day)) == rows


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
    tiny_home, nights, shards_before_the_kill, write_night
):
    """kill -9 in the middle, run again, compare with a run left in peace."""
    write_night(tiny_home, LARGE, rows=120)
    arguments = ["score", "tiny", "--date", LARGE, FOUR_A_SHARD, "--home", str(tiny_home.root)]
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs", *arguments],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while len(list(tiny_home.staging("tiny").rglob("shards/*.json"))) < shards_before_the_kill:
        assert process.poll() is None
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert Partition(tiny_home, "tiny", Date.fromisoformat(LARGE)).current() is None

    resumed = score(tiny_home, LARGE, FOUR_A_SHARD)
    assert resumed.code == 0, resumed.log
    assert "resuming:" in resumed.log
    assert files_of(tiny_home, LARGE) == files_of(nights.home, LARGE)
    publication = json.loads(
        (tiny_home.scores("tiny") / f"date={LARGE}" / "publications.jsonl").read_text()
    )
    assert publication["shards_scored"] <= 30 - shards_before_the_kill


def test_parquet_files_have_the_declared_schema(nights, tiny_task):
    from schemas.records import quarantine_schema, scores_schema

    manifest = Partition(nights.home, "tiny", Date.fromisoformat(TINY)).current()
    scores, quarantine = (
        folder / f"date={TINY}" / f"run={manifest.run}"
        for folder in (nights.home.scores("tiny"), nights.home.quarantine("tiny"))
    )
    assert len(manifest.scores) > 1
    for part in manifest.scores:
        assert pq.ParquetFile(scores / part.name).schema_arrow.equals(
            scores_schema(tiny_task.heads)
        )
    rejected = [pq.ParquetFile(quarantine / part.name) for part in manifest.quarantine]
    assert all(file.schema_arrow.equals(quarantine_schema()) for file in rejected)
    raw = [row["raw"] for file in rejected for row in file.read().to_pylist()]
    assert b'{"ticket_id": "cut o' in raw
