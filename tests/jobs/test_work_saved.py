"""Nights with kept answers, two models, copies elsewhere, or too many rejects: jobs as a whole."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from datetime import date as Date
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.bundle import scoring_flow
from pipeline.model.labelled import Example, save_examples
from pipeline.outcome_report import read_scores
from pipeline.publish import Partition
from pipeline.quarantined import quarantined_rows
from pipeline.rows import RawRow
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.fingerprint import digest_of_file
from schemas.home import Home
from schemas.training import TrainingRun

pytestmark = pytest.mark.slow

DAY, NEXT_DAY = "2026-11-20", "2026-11-21"
CACHE = "score.cache.enabled=true"


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """Workers in this process, one shard after the other: Ray is not what is tested."""
    import jobs.cluster
    import jobs.scoring

    def score_shards(work, *, bundle, task, model, cleaner_version, workers, **options):
        worker = jobs.scoring.ShardWorker(bundle, task, model, cleaner_version, **options)
        for item in work:
            yield worker(item.to_row())

    monkeypatch.setattr(jobs.scoring, "score_shards", score_shards)
    monkeypatch.setattr(jobs.cluster, "scoring_session", lambda _: nullcontext())


@pytest.fixture
def run(nightmill, tiny_home, tmp_path):
    def call(job, *arguments, home=tiny_home):
        result = tmp_path / "result.json"
        result.unlink(missing_ok=True)
        done = nightmill(job, "tiny", *arguments, "--result", str(result), home=home)
        answer = json.loads(result.read_text()) if result.exists() else None
        return SimpleNamespace(code=done.exit_code, log=done.stderr, answer=answer)

    return call


def partition(home, day=DAY):
    return Partition(home, "tiny", Date.fromisoformat(day))


def files_of(home, day):
    """Digest of every published file of a date but the log of publications."""
    folders = [partition(home, day).scores, partition(home, day).quarantine]
    return {
        str(path.relative_to(home.root)): digest_of_file(path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "publications.jsonl"
    }


def remembered(home, day):
    return partition(home, day).publications()[-1].texts_remembered


def test_a_night_with_kept_answers_has_the_same_bytes(run, tiny_home, tmp_path, write_night):
    other = Home(tmp_path / "other")
    shutil.copytree(tiny_home.tasks, other.tasks)
    for home in (tiny_home, other):
        for day in (DAY, NEXT_DAY):
            write_night(home, day, rows=34)
    for day in (DAY, NEXT_DAY):
        assert run("score", "--date", day, CACHE).code == 0
        assert run("score", "--date", day, home=other).code == 0
        assert files_of(tiny_home, day) == files_of(other, day)
    # The one repeated text, in another shard; then all texts of the night, each in its shard.
    assert [remembered(tiny_home, day) for day in (DAY, NEXT_DAY)] == [1, 31]
    assert remembered(other, NEXT_DAY) == 0
    counters = partition(tiny_home, NEXT_DAY).published().counters
    assert counters.texts_inferred == 31

    shutil.rmtree(tiny_home.cache("tiny"))
    shutil.rmtree(partition(tiny_home, NEXT_DAY).scores)
    assert run("score", "--date", NEXT_DAY, CACHE).code == 0
    assert files_of(tiny_home, NEXT_DAY) == files_of(other, NEXT_DAY)
    assert remembered(tiny_home, NEXT_DAY) == 1


def test_the_cache_keeps_its_bound_and_no_answers_of_a_gpu(run, tiny_home, write_night):
    write_night(tiny_home, DAY, rows=20)
    refused = run("score", "--date", DAY, CACHE, "score.device=gpu")
    assert refused.code == 2
    assert "score.cache.enabled is for score.device=cpu" in refused.log
    old = tiny_home.cache("tiny") / "key" / "date=2020-01-01" / "big.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(bytes(1 << 20))
    assert run("score", "--date", DAY, CACHE, f"score.cache.max_bytes={1 << 20}").code == 0
    assert not old.exists()
    assert len(list(tiny_home.cache("tiny").glob(f"*/date={DAY}/*.keys"))) == 2


def test_failure_06_a_night_that_a_sink_missed_is_copied_by_the_next_run(
    run, tiny_home, write_night
):
    write_night(tiny_home, DAY, rows=20)
    sinks = "score.sinks=[{location: blocked/copy}, {location: copies}]"
    blocked = tiny_home.root / "blocked"
    blocked.write_text("a file where a folder should be")
    first = run("score", "--date", DAY, sinks)
    assert first.code in {2, 75}
    assert "is published here, but not at blocked/copy" in first.log
    assert partition(tiny_home).current() is not None
    published = files_of(tiny_home, DAY)
    assert files_of(Home(tiny_home.root / "copies"), DAY) == published

    blocked.unlink()
    second = run("score", "--date", DAY, sinks)
    assert second.code == 0, second.log
    assert "already published, no inference" in second.log
    assert files_of(Home(tiny_home.root / "blocked" / "copy"), DAY) == published
    copy = Home(tiny_home.root / "copies")
    assert read_scores(copy, partition(copy).published()).num_rows == 17


def test_a_replay_goes_to_the_sinks_too(run, tiny_home, write_night):
    write_night(tiny_home, DAY, rows=30)
    sinks = "score.sinks=[{location: copies}]"
    tight = "contract.max_text_chars=60", "contract.max_reject_fraction=0.9"
    assert run("score", "--date", DAY, sinks, *tight).code == 0
    assert run("replay", "--date", DAY, sinks).code == 0
    copy = Home(tiny_home.root / "copies")
    assert partition(copy).published() == partition(tiny_home).published()
    assert partition(copy).published().replays


def test_too_many_rejects_publish_nothing(run, tiny_home, write_night):
    write_night(tiny_home, DAY, rows=20)
    stop = "contract.stop_on=[invalid_json]"
    done = run("score", "--date", DAY, "contract.max_reject_fraction=0.1", stop)
    assert done.code == 3
    assert "3 of 20 rows rejected (15.0%, allowed 10.0%): " in done.log
    assert f"1 missing_text (such as {DAY}-empty)" in done.log
    assert f"rows rejected as invalid_json: 1 (such as incoming/tiny/date={DAY}/r" in done.log
    assert f"`nightmill quarantine show tiny --date {DAY} --staged` shows the rows" in done.log
    assert partition(tiny_home).current() is None
    assert len(list(quarantined_rows(partition(tiny_home).staged().rejected()))) == 3


@pytest.fixture
def small_bundle(tiny_bundle, tmp_path):
    """The tiny model with other temperatures, which make it surer or less sure of the same."""
    folder = tmp_path / "small"
    shutil.copytree(tiny_bundle, folder)
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    temperatures = {"queue": 1.2, "topics": 0.7}
    spec.model_copy(update={"temperatures": temperatures}).write(folder / BUNDLE_FILE)
    return folder


def write_examples(home, tiny_bundle, tiny_task):
    """Validation and test texts whose truth is what the tiny model answers."""
    rows = [
        RawRow("a", n, {"ticket_id": f"t{n}", "subject": "invoice",
                        "body": " ".join(np.random.default_rng(n).choice(
                            ["card", "late", "price", "login", "broken"], 1 + n % 30))}, b"raw")
        for n in range(60)
    ]  # fmt: skip
    labels = {name: head.labels for name, head in tiny_task.heads.items()}
    examples = [
        Example(
            row.prepared.record.record_id, row.prepared.text_hash,
            "valid" if number % 2 else "test", "en", row.prepared.texts, (),
            {
                "queue": labels["queue"].index(row.answers["queue"].labels[0]),
                "topics": tuple(int(one in row.answers["topics"].labels)
                                for one in labels["topics"]),
            },
        )
        for number, row in enumerate(scoring_flow(tiny_bundle, tiny_task).score(rows).scored)
    ]  # fmt: skip
    place = TrainingRun(home, "tiny", "tiny-run")
    place.folder.mkdir(parents=True)
    save_examples(examples, place.examples)


def test_a_cascade_is_measured_and_then_scores(
    run, tiny_home, tiny_bundle, tiny_task, small_bundle, write_night
):
    write_night(tiny_home, DAY, rows=30)
    cascade = f"score.cascade={{model: 'path:{small_bundle}', max_metric_loss: 0.01}}"
    loose = "heads.queue.review_below=0", "heads.topics.review_below=0"
    unmeasured = run("score", "--date", DAY, cascade, *loose)
    assert unmeasured.code == 4
    assert "were not measured together; `nightmill cascade tiny` measures them" in unmeasured.log
    missing = run("cascade", cascade, *loose)
    assert missing.code == 4
    assert "the validation texts of training run tiny-run are not in" in missing.log

    write_examples(tiny_home, tiny_bundle, tiny_task)
    measured = run("cascade", cascade, *loose)
    assert measured.code == 0, measured.log
    assert measured.answer["valid"]["rows"] == 30
    assert measured.answer["test"]["rows"] == 30
    # The same weights: whatever it is sure of, it answers as the large one does.
    assert measured.answer["valid"]["together"] == measured.answer["valid"]["large"]
    assert measured.answer["valid"]["share_of_small"] > 0.5

    alone = run("score", "--date", DAY, *loose)
    both = run("score", "--date", DAY, cascade, *loose)
    assert (alone.code, both.code) == (0, 0), both.log
    runs = [done.answer["partitions"][DAY]["run"] for done in (alone, both)]
    assert runs[0] != runs[1]
    manifest = partition(tiny_home).published()
    assert manifest.cascade.small.digest == measured.answer["small"]["digest"]
    digests = read_scores(tiny_home, manifest)["model_digest"].to_pylist()
    assert set(digests) <= {manifest.cascade.small.digest, manifest.model.digest}
    assert digests.count(manifest.cascade.small.digest) > len(digests) / 2
    again = run("score", "--date", DAY, cascade, *loose)
    assert "already published, no inference" in again.log

    stricter = run("score", "--date", DAY, cascade, "score.cascade.max_metric_loss=0.001", *loose)
    assert stricter.code == 4
    assert "allow a loss of 0.01, the task one of 0.001" in stricter.log
    other = run("replay", "--date", DAY, *loose)
    assert other.code == 4
    assert "was scored with another cascade than the task has now" in other.log
    assert run("replay", "--date", DAY, cascade, *loose).code == 0


def test_a_small_model_that_does_not_fit_is_refused(run, tiny_home, tiny_bundle, small_bundle):
    none = run("cascade")
    assert none.code == 2
    assert "the task has no cascade" in none.log
    itself = run("cascade", f"score.cascade={{model: 'path:{tiny_bundle}'}}")
    assert itself.code == 4
    assert "is the task's own model" in itself.log
    spec = BundleSpec.read(small_bundle / BUNDLE_FILE)
    train = spec.task.train.model_copy(update={"seed": 99})
    changed = spec.task.model_copy(update={"train": train})
    spec.model_copy(update={"task": changed}).write(small_bundle / BUNDLE_FILE)
    seen = run("cascade", f"score.cascade={{model: 'path:{small_bundle}'}}")
    assert seen.code == 4
    assert "train.seed=99, the large one with 13: it may have seen" in seen.log
