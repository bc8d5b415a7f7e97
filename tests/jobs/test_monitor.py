"""A published night against the ones before it: what is said, and what follows from it."""

from __future__ import annotations

import datetime as dt
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from jobs import quality_check
from jobs.late_input import changed_since_scored, is_there
from jobs.monitor import look_at
from jobs.night_checks import compare
from jobs.night_summary import summary_of
from jobs.quality_check import quality_findings
from pipeline.publish import MANIFEST_FILE, PUBLICATIONS_FILE
from schemas.bundle import BUNDLE_FILE, BundleSpec, HeadMetrics
from schemas.fingerprint import digest_of_file
from schemas.load import load_task, parse_task
from schemas.manifest import (
    Counters,
    InputFile,
    ModelRef,
    PartFile,
    PartitionManifest,
    Publication,
)
from schemas.monitor import HeadAnswers, MonitorConfig, NightSummary

TASK = """\
name: tiny
data:
  incoming: incoming/tiny/date={date}/*.jsonl
  id_column: ticket_id
  text_columns: [subject, body]
heads:
  queue: {column: queue, labels: [billing, technical, shipping]}
  topics: {kind: multi, column: topics, labels: [price, quality]}
"""
MODEL = ModelRef(name="tiny", version="3", digest="a" * 64)
FIRST = dt.date(2026, 11, 20)
RULES = MonitorConfig()


def summary(number=0, *, rows=1000, model=MODEL, **changed):
    night = {
        "date": str(FIRST + dt.timedelta(days=number)),
        "run": f"run{number}",
        "model": model,
        "rows_read": rows,
        "rows_scored": rows,
        "rows_quarantined": 0,
        "rows_to_review": rows // 10,
        "languages": {"en": rows},
        "unknown_share": 0.01,
        "answers": {"queue": HeadAnswers(labels={"billing": 600, "shipping": 400}, confidence=0.8)},
        "seconds_per_1000_rows": 10.0,
    }
    return NightSummary(**night | changed)


USUAL = [summary(number) for number in (4, 3, 2, 1, 0)]


def unlike(findings):
    return {finding.check: finding for finding in findings if finding.level != "ok"}


def test_a_night_as_the_others_is_ok():
    findings = compare(summary(5), USUAL, RULES)
    assert unlike(findings) == {}
    assert {finding.check for finding in findings} == {
        "volume", "quarantine", "cost", "languages", "unknown tokens", "answers of queue",
        "confidence of queue", "review",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "check", "value", "is_drift"),
    [
        ({"rows_read": 3000}, "volume", 3.0, False),
        ({"rows_read": 250}, "volume", 4.0, False),
        ({"rows_quarantined": 100}, "quarantine", 0.1, False),
        ({"seconds_per_1000_rows": 25.0}, "cost", 2.5, False),
        ({"languages": {"fr": 1000}}, "languages", 1.0, True),
        ({"unknown_share": 0.05}, "unknown tokens", 0.04, True),
        (
            {"answers": {"queue": HeadAnswers(labels={"technical": 1000}, confidence=0.8)}},
            "answers of queue", 1.0, True,
        ),
        (
            {
                "answers": {
                    "queue": HeadAnswers(labels={"billing": 60, "shipping": 40}, confidence=0.7)
                }
            },
            "confidence of queue", 0.1, True,
        ),
        ({"rows_to_review": 350}, "review", 0.25, True),
    ],
)  # fmt: skip
def test_what_is_unlike_the_others_is_named(changed, check, value, is_drift):
    found = unlike(compare(summary(5, **changed), USUAL, RULES))
    assert list(found) == [check]
    assert found[check].value == pytest.approx(value)
    assert (found[check].level, found[check].is_drift) == ("watch", is_drift)
    assert f"(limit {found[check].limit:g})" in found[check].told


def test_price_counts_rather_than_seconds_where_there_is_one():
    priced = [each.model_copy(update={"cost_per_1000_rows": 0.5}) for each in USUAL]
    night = summary(5, cost_per_1000_rows=0.5, seconds_per_1000_rows=99.0)
    assert unlike(compare(night, priced, RULES)) == {}


def test_too_few_nights_or_rows_say_nothing_of_shares():
    (only,) = compare(summary(5, languages={"fr": 1}), USUAL[:2], RULES)
    assert (only.check, only.level) == ("history", "ok")
    few = compare(summary(5, rows=150, languages={"fr": 150}), USUAL, RULES)
    assert {finding.check for finding in few} == {"volume", "quarantine", "cost"}


def test_answers_of_another_model_are_no_measure():
    other = MODEL.model_copy(update={"digest": "b" * 64})
    answers = {"queue": HeadAnswers(labels={"technical": 1000}, confidence=0.1)}
    findings = compare(summary(5, model=other, answers=answers), USUAL, RULES)
    assert unlike(findings) == {}
    assert "answers of queue" not in {finding.check for finding in findings}


@pytest.fixture
def tiny_home(home):
    """A home with a task, and no model: to look at a night takes none."""
    home.tasks.mkdir()
    (home.tasks / "tiny.yaml").write_text(TASK)
    return home


@pytest.fixture
def publish(tiny_home):
    """Publishes a night of the task `tiny` as scoring would, and its input beside it."""

    def publish(number, *, queue="billing", rows=300, lang="en"):
        day = FIRST + dt.timedelta(days=number)
        source = tiny_home.root / f"incoming/tiny/date={day}/rows.jsonl"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("\n".join(f'{{"ticket_id": "{day}-{n}"}}' for n in range(rows)) + "\n")
        folder = tiny_home.scores("tiny") / f"date={day}"
        part = folder / "run=r" / "part-00000.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        half = rows // 2
        table = pa.table(
            {
                "record_id": [f"{day}-{n}" for n in range(rows)],
                "queue": pa.array([queue] * half + ["shipping"] * (rows - half)),
                "queue_confidence": np.full(rows, 0.75, np.float32),
                "queue_scores": [[0.8, 0.1, 0.1]] * half + [[0.1, 0.1, 0.8]] * (rows - half),
                "topics": pa.array(
                    [["price"]] * half + [[]] * (rows - half), pa.list_(pa.string())
                ),
                "topics_confidence": np.full(rows, 0.5, np.float32),
                "topics_scores": [[0.8, 0.1]] * rows,
                "lang": [lang] * rows,
            }
        )
        pq.write_table(table, part)
        source_facts = InputFile(
            name=source.relative_to(tiny_home.root).as_posix(), format="jsonl",
            bytes=source.stat().st_size, rows=rows, sha256=digest_of_file(source),
        )  # fmt: skip
        PartitionManifest(
            task="tiny", date=str(day), run="r", fingerprint="f", model=MODEL, config_digest="c",
            cleaner_version="1", inputs=(source_facts,), quarantine=(),
            counters=Counters(rows_read=rows, rows_scored=rows, rows_to_review=rows // 10),
            scores=(PartFile(name=part.name, rows=rows, sha256=digest_of_file(part)),),
        ).write(folder / MANIFEST_FILE)  # fmt: skip
        line = Publication(
            run="r", published_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            rows_scored=rows, worker_seconds=1.0, seconds=rows / 100, workers=1,
        )  # fmt: skip
        (folder / PUBLICATIONS_FILE).write_text(line.model_dump_json() + "\n")
        return day

    return publish


def monitor(home, *arguments):
    from jobs.monitor import command

    result = home.root / "result.json"
    result.unlink(missing_ok=True)
    done = CliRunner().invoke(
        command, ["tiny", *arguments, "--home", str(home.root), "--result", str(result)]
    )
    assert done.exit_code == 0, done.output
    return json.loads(result.read_text())


def test_a_night_in_numbers(tiny_home, publish):
    day = publish(0)
    night = summary_of(load_task("tiny", tiny_home), tiny_home, day)
    assert night.languages == {"en": 300}
    assert night.answers == {
        "queue": HeadAnswers(labels={"billing": 150, "shipping": 150}, confidence=0.75),
        "topics": HeadAnswers(labels={"(none)": 150, "price": 150}, confidence=0.5),
    }
    assert night.seconds_per_1000_rows == pytest.approx(10.0)
    assert (night.unknown_share, night.cost_per_1000_rows) == (None, None)


def test_drift_is_watched_and_asks_for_a_model_when_it_lasts(tiny_home, publish):
    for number in range(4):
        publish(number)
    levels = {}
    for number in range(4, 7):
        day = publish(number, lang="fr")
        answer = monitor(tiny_home, "--date", str(day))
        levels |= answer["verdicts"]
    # Three strange nights are no longer strange among seven, but they are the third in a row.
    assert list(levels.values()) == ["watch", "watch", "retrain"]
    assert "3 nights in a row are unlike the ones before them" in answer["evidence"][0]
    kept = json.loads((tiny_home.monitor("tiny") / f"date={day}.json").read_text())
    assert (kept["level"], kept["night"]["languages"]) == ("retrain", {"fr": 300})


def test_a_verdict_is_repeated_word_for_word(tiny_home, publish):
    for number in range(5):
        day = publish(number, queue="technical" if number == 4 else "billing")
    first = monitor(tiny_home, "--date", str(day))
    assert first["verdicts"] == {str(day): "watch"}
    assert monitor(tiny_home, "--date", str(day)) == first


def test_night_that_is_not_published_is_watched_and_fails_nothing(tiny_home):
    answer = monitor(tiny_home, "--date", "2026-11-20", "--claim", "k")
    assert answer["verdicts"] == {"2026-11-20": "watch"}
    assert "tiny 2026-11-20 is not published" in answer["evidence"][0]
    assert answer["retrain"] == {"granted": False, "reason": "the verdict is watch"}


def with_settings(home, **sections):
    path = home.tasks / "tiny.yaml"
    raw = yaml.safe_load(path.read_text())
    for name, settings in sections.items():
        raw[name] = (raw.get(name) or {}) | settings
    path.write_text(yaml.safe_dump(raw))


@pytest.fixture
def poor(tiny_home, publish):
    """A night whose outcomes say that every answer but those of `shipping` was wrong."""
    with_settings(tiny_home, data={"outcomes": "outcomes/{date}.jsonl"})
    day = publish(0)
    rows = [
        {"ticket_id": f"{day}-{n}", "queue": "technical" if n % 2 else "shipping", "topics": []}
        for n in range(300)
    ]
    path = tiny_home.root / f"outcomes/{day}.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return day


def promise(macro_f1):
    return HeadMetrics(
        rows=500, accuracy=macro_f1, accuracy_interval=(0.0, 1.0), macro_f1=macro_f1,
        macro_f1_interval=(0.0, 1.0), expected_calibration_error=0.0, majority_accuracy=0.4,
    )  # fmt: skip


def test_quality_under_the_promise_asks_for_a_model(tiny_home, poor, monkeypatch):
    monkeypatch.setattr(quality_check, "_promised", lambda *_: {"queue": promise(0.9)})

    verdict = look_at(load_task("tiny", tiny_home), tiny_home, poor)

    assert verdict.level == "retrain"
    found = {finding.check: finding for finding in verdict.findings}
    assert found["quality of queue"].value < 0.4
    assert "on 300 outcomes, 0.900 on held-out rows" in found["quality of queue"].told
    assert found["quality of topics"].level == "ok"  # nobody has promised anything of it


def test_quality_just_under_the_promise_is_watched(tiny_home, poor, monkeypatch):
    task = load_task("tiny", tiny_home)
    (measured, _) = quality_findings(task, tiny_home, [poor], model=MODEL)
    near = promise(measured.value + task.monitor.max_metric_drop + 0.005)
    monkeypatch.setattr(quality_check, "_promised", lambda *_: {"queue": near})
    (found, _) = quality_findings(task, tiny_home, [poor], model=MODEL)
    assert found.level == "watch"


@pytest.mark.slow
def test_what_the_model_promised_stands_in_its_bundle(home, tiny_bundle):
    spec = BundleSpec.read(tiny_bundle / BUNDLE_FILE)
    scored = MODEL.model_copy(update={"digest": spec.digest})
    by_path = parse_task(
        yaml.safe_load(TASK) | {"score": {"model": f"path:{tiny_bundle}"}}, source="t"
    )
    assert quality_check._promised(by_path, home, scored) == spec.metrics
    fetched = parse_task(yaml.safe_load(TASK), source="t")
    assert quality_check._promised(fetched, home, scored) == {}
    (home.root / "downloads").mkdir()
    (home.downloads / spec.digest[:16]).symlink_to(tiny_bundle)
    assert quality_check._promised(fetched, home, scored) == spec.metrics
    assert quality_check._promised(fetched, home, MODEL) == {}


def test_few_outcomes_say_nothing(tiny_home, poor):
    with_settings(tiny_home, monitor={"min_outcome_rows": 301})
    verdict = look_at(load_task("tiny", tiny_home), tiny_home, poor)
    assert verdict.level == "ok"
    assert not [each for each in verdict.findings if each.check.startswith("quality")]


def test_retraining_is_granted_once_within_its_cool_down(tiny_home, publish):
    with_settings(tiny_home, monitor={"retrain": True, "retrain_after": 1, "cooldown_days": 3})
    for number in range(3):
        publish(number)
    asked = {}
    for number in range(3, 7):
        day = publish(number, lang=f"x{number}")
        asked[number] = monitor(tiny_home, "--date", str(day), "--claim", f"c{number}")["retrain"]
    assert [asked[number]["granted"] for number in range(3, 7)] == [True, False, False, True]
    assert asked[3]["reason"].startswith("monitor 2026-11-23: 1 nights in a row are unlike")
    assert len(asked[3]["reason"]) <= 480
    assert "within monitor.cooldown_days 3 of 2026-11-24" in asked[4]["reason"]


def test_retraining_that_nobody_has_allowed_is_not_granted(tiny_home, publish):
    with_settings(tiny_home, monitor={"retrain_after": 1})
    for number in range(4):
        day = publish(number, lang="fr" if number == 3 else "en")
    answer = monitor(tiny_home, "--date", str(day), "--claim", "k")
    assert answer["verdicts"] == {str(day): "retrain"}
    assert answer["retrain"] == {"granted": False, "reason": "monitor.retrain is not set"}


def test_input_that_came_after_its_night_is_seen(tiny_home, publish):
    days = [publish(number) for number in range(4)]
    folder = tiny_home.root / "incoming/tiny"
    (folder / f"date={days[0]}" / "late.jsonl").write_text("{}\n")
    with (folder / f"date={days[1]}" / "rows.jsonl").open("a") as file:
        file.write("{}\n")
    same_size = folder / f"date={days[2]}" / "rows.jsonl"
    same_size.write_bytes(same_size.read_bytes().replace(b"ticket_id", b"ticket_ID"))
    task = load_task("tiny", tiny_home)
    assert changed_since_scored(task, tiny_home, days) == tuple(days[:3])


def test_old_input_is_not_read_again_and_input_that_is_gone_has_not_changed(tiny_home, publish):
    day, gone = publish(0), publish(1)
    path = tiny_home.root / f"incoming/tiny/date={day}/rows.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ticket_id", b"ticket_ID"))
    os.utime(path, (0, 0))  # as old as that no file is opened for it
    (tiny_home.root / f"incoming/tiny/date={gone}/rows.jsonl").unlink()
    assert changed_since_scored(load_task("tiny", tiny_home), tiny_home, [day, gone]) == ()


def test_dates_to_score_again_reach_back_as_far_as_the_task_says(tiny_home, publish):
    days = [publish(number) for number in range(4)]
    for day in days:
        (tiny_home.root / f"incoming/tiny/date={day}/late.jsonl").write_text("{}\n")
    assert monitor(tiny_home, "--date", str(days[3]))["changed"] == [str(days[3])]
    with_settings(tiny_home, schedule={"late": {"rescore_days": 2}})
    answer = monitor(tiny_home, "--date", str(days[3]))
    assert answer["changed"] == [str(day) for day in days[1:]]
    assert f"input of {days[1]} is not what was scored" in " ".join(answer["evidence"])


def arrived(home, *arguments):
    from jobs.arrived import command

    result = home.root / "result.json"
    done = CliRunner().invoke(
        command, ["tiny", *arguments, "--home", str(home.root), "--result", str(result)]
    )
    assert done.exit_code == 0, done.output
    return json.loads(result.read_text())


def test_arrival_of_files_or_of_the_marker(tiny_home):
    days = ("--date", "2026-11-20", "--through", "2026-11-21")
    folder = tiny_home.root / "incoming/tiny/date=2026-11-20"
    assert arrived(tiny_home, *days)["missing"] == ["2026-11-20", "2026-11-21"]
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("{}\n")
    assert arrived(tiny_home, *days)["missing"] == ["2026-11-21"]
    marked = "schedule.late.marker=incoming/tiny/date={date}/_SUCCESS"
    assert arrived(tiny_home, *days[:2], marked)["missing"] == ["2026-11-20"]
    (folder / "_SUCCESS").touch()
    assert arrived(tiny_home, *days[:2], marked) == {
        "missing": [], "location": "incoming/tiny/date={date}/_SUCCESS",
    }  # fmt: skip
    assert is_there("incoming/tiny/date={date}/*.jsonl", tiny_home, dt.date(2026, 11, 20))
