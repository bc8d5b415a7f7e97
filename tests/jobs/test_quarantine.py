"""`nightmill quarantine show`: counts and samples for people, and nothing that harms a terminal."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pipeline.publish import Partition, reconcile
from pipeline.rows import Rejected
from pipeline.tables import quarantine_table
from schemas.manifest import Counters, ModelRef, PartitionManifest, Shard
from schemas.reasons import Reason, Stage
from schemas.task import QuarantineConfig

DAY = "2026-11-20"
ROWS = [
    Rejected(
        f"t{n}", "in/rows.jsonl", n, Stage.VALIDATE, Reason.MISSING_TEXT, "blank: body",
        b'{"body": " ", "from": "ada%d@example.org"}' % n,
    )
    for n in range(5)
] + [
    Rejected(
        None, "in/rows.jsonl", 5, Stage.READ, Reason.INVALID_JSON, "Expecting ',' at character 9",
        '{"body": "\x1b[2J\u202e日本語のとても長い文章がここに'.encode() + b"\xff" + b"x" * 500,
    ),
    Rejected(
        "t6", "in/rows.jsonl", 6, Stage.VALIDATE, Reason.VALUE_OUT_OF_RANGE,
        "column 'age': max_value", b"{}",
    ),
    Rejected(
        "t7", "in/rows.jsonl", 7, Stage.VALIDATE, Reason.VALUE_OUT_OF_RANGE,
        "column 'year': min_value", b"{}",
    ),
]  # fmt: skip


def stage(home, *, day=DAY, rows=ROWS, raw="bytes"):
    """A finished shard of 100 rows; answers what publishes it."""
    partition = Partition(home, "tiny", dt.date.fromisoformat(day))
    shard = Shard(
        index=0, name="in/rows.jsonl", path="x", format="jsonl", start=0, stop=1, first_row=0,
        rows=100,
    )  # fmt: skip
    staging = partition.staging("run0")
    quarantine = quarantine_table(rows, policy=QuarantineConfig(raw=raw), contract_version="c1")
    scores = pa.table({"record_id": [str(n) for n in range(100 - len(rows))]})
    counters = Counters(rows_read=100, rows_scored=100 - len(rows), rows_quarantined=len(rows))
    staging.write(shard, scores=scores, quarantine=quarantine, counters=counters)
    done = staging.finished([shard])
    manifest = PartitionManifest(
        task="tiny", date=day, run="run0", fingerprint="f",
        model=ModelRef(name="m", version="1", digest="d"), config_digest="c",
        cleaner_version="1", inputs=(), counters=reconcile([shard], done, what="tiny"),
        scores=(done[0].scores,), quarantine=(done[0].quarantine,),
    )  # fmt: skip
    return partition, manifest


def publish(home, **changes):
    partition, manifest = stage(home, **changes)
    partition.publish(manifest, keep_runs=1)


@pytest.fixture
def show(nightmill, tiny_home, tmp_path):
    def call(*arguments):
        result = tmp_path / "result.json"
        result.unlink(missing_ok=True)
        done = nightmill(
            "quarantine", "show", "tiny", "--date", DAY, *arguments, "--result", str(result),
            home=tiny_home,
        )  # fmt: skip
        return SimpleNamespace(
            code=done.exit_code,
            log=done.stderr,
            out=done.stdout,
            words=" ".join(done.stdout.replace("│", " ").split()),
            answer=json.loads(result.read_text()) if result.exists() else None,
        )

    return call


def test_rows_are_counted_by_reason_and_shown_in_samples(show, tiny_home):
    publish(tiny_home)
    shown = show()
    assert shown.code == 0, shown.log
    assert shown.answer == {
        "dates": {
            DAY: {
                "run": "run0",
                "rows_read": 100,
                "rows": 8,
                "by_reason": {"invalid_json": 1, "missing_text": 5, "value_out_of_range": 2},
            }
        }
    }
    assert f"tiny {DAY}, run run0: 8 of 100 rows rejected" in shown.out
    assert "missing_text validate 5 5.00%" in shown.words
    assert "t2 rows.jsonl:2 blank: body" in shown.words
    assert "t3 " not in shown.words


def test_personal_data_is_masked_unless_asked_for(show, tiny_home):
    publish(tiny_home)
    masked, unmasked = show().words, show("--unmasked").words
    assert "[EMAIL]" in masked
    assert "example.org" not in masked
    assert '"ada0@example.org"' in unmasked


def test_nothing_that_a_terminal_obeys_comes_through(show, tiny_home):
    publish(tiny_home)
    for out in (show().out, show("--unmasked").out):
        assert "\x1b" not in out
        assert "\u202e" not in out
    assert r"\x1b[2J\u202e日本語" in show("--unmasked", "--reason", "invalid_json").words


def test_wide_characters_stay_within_the_table(show, tiny_home):
    from rich.cells import cell_len

    publish(tiny_home)
    lines = show("--unmasked", "--reason", "invalid_json").out.splitlines()
    widths = {cell_len(line) for line in lines if line.startswith(("│", "┃", "├", "└", "┏"))}
    assert "日本語" in "".join(lines)
    assert max(widths) <= 110
    assert len(widths) == 2  # one of each table


def test_one_reason_and_the_number_of_samples_can_be_chosen(show, tiny_home):
    publish(tiny_home)
    shown = show("--reason", "missing_text", "--samples", "5")
    assert shown.answer["dates"][DAY]["by_reason"] == {"missing_text": 5}
    assert "t4 rows.jsonl:4" in shown.words
    assert "invalid_json" not in shown.words
    assert "rows.jsonl:" not in show("--samples", "0").words


def test_counts_by_column_and_rule(show, tiny_home):
    publish(tiny_home)
    assert "value_out_of_range validate 2 2.00%" in show().words
    words = show("--columns").words
    assert "value_out_of_range validate column 'age': max_value 1 1.00%" in words
    assert "value_out_of_range validate column 'year': min_value 1 1.00%" in words


def test_by_the_policy_hash_the_hash_is_shown(show, tiny_home):
    publish(tiny_home, raw="hash")
    words = show("--unmasked").words
    assert "(2 bytes, SHA-256 44136fa355b3678a)" in words
    assert "example.org" not in words


def test_a_date_without_rejects_says_so(show, tiny_home):
    publish(tiny_home, rows=[])
    shown = show()
    assert shown.code == 0
    assert "0 of 100 rows rejected" in shown.out
    assert shown.answer["dates"][DAY] == {
        "run": "run0",
        "rows_read": 100,
        "rows": 0,
        "by_reason": {},
    }


def test_dates_of_a_range_are_shown_one_by_one(show, tiny_home):
    publish(tiny_home)
    publish(tiny_home, day="2026-11-21", rows=ROWS[:2])
    dates = show("--through", "2026-11-21").answer["dates"]
    assert {day: night["rows"] for day, night in dates.items()} == {DAY: 8, "2026-11-21": 2}


def test_an_unknown_reason_and_a_missing_publication_are_named(show, tiny_home):
    refused = show("--reason", "mising_text")
    assert refused.code == 2
    assert "unknown reason 'mising_text' (did you mean 'missing_text'?)" in refused.log
    refused = show()
    assert refused.code == 4
    assert f"tiny {DAY} is not published; `nightmill score tiny --date {DAY}`" in refused.log


def test_rows_of_a_run_that_was_stopped_are_shown_from_staging(show, tiny_home):
    refused = show("--staged")
    assert refused.code == 4
    assert f"tiny {DAY}: no run waits for publication; leave --staged out" in refused.log
    stage(tiny_home)
    shown = show("--staged")
    assert shown.code == 0, shown.log
    assert shown.answer["dates"][DAY]["rows"] == 8
    assert shown.answer["dates"][DAY]["rows_read"] == 100
