"""Nights as Airflow runs them: events of published scores, backfill, and what follows a verdict."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import DagModel, DagRun
from airflow.models.asset import AssetDagRunQueue, AssetEvent
from airflow.models.backfill import _create_backfill
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from click.testing import CliRunner
from sqlalchemy import select

from dags.operators.runner import Outcome
from schemas.manifest import PartitionManifest

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parents[2] / "dags"
NIGHT = datetime(2026, 11, 28, 2, tzinfo=UTC)
DAYS = [f"2026-11-{day}" for day in range(20, 28)]
BROKEN = "2026-11-27"


@pytest.fixture(scope="module", autouse=True)
def database():
    initdb()


def store_dags():
    """Writes the DAGs of the present home to Airflow's database, switched on."""
    DagBundlesManager().sync_bundles_to_db()
    bag = BundleDagBag(dag_folder=str(DAGS), bundle_path=str(DAGS), bundle_name="dags-folder")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    return bag.dags


def switch_on(dag_id):
    with create_session() as session:
        session.get(DagModel, dag_id).is_paused = False


def states_of(run):
    return {instance.task_id: instance.state for instance in run.get_task_instances()}


def test_event_of_published_scores_has_the_counts_and_starts_who_waits_for_it(
    home, fake_jobs, published
):
    """A DAG scheduled by the asset stands in Airflow's queue once the night is published."""
    (home / "tasks").mkdir()
    text = (DAGS.parent / "schemas" / "tasks" / "tickets.yaml").read_text()
    waits = text.replace("name: tickets", "name: follow_up")
    (home / "tasks" / "follow_up.yaml").write_text(
        waits + "schedule: {asset: 'x-nightmill://scores/tickets'}\n"
    )
    store_dags()
    switch_on("nightly_scoring_follow_up")
    fake_jobs.answer("score", result=published("tickets", "2026-11-28"))

    run = DagBag(str(DAGS)).dags["nightly_scoring_tickets"].test(logical_date=NIGHT)

    assert states_of(run)["publish"] == "success"
    with create_session() as session:
        events = session.scalars(
            select(AssetEvent).where(AssetEvent.source_run_id == run.run_id)
        ).all()
        (event,) = [event for event in events if event.source_task_id == "publish"]
        waiting = set(session.scalars(select(AssetDagRunQueue.target_dag_id)))
    assert {key: event.extra[key] for key in ("date", "run", "rows_read", "model_version")} == {
        "date": "2026-11-28", "run": "run-2026-11-28", "rows_read": 10, "model_version": "7",
    }  # fmt: skip
    assert event.extra["rows_scored"] + event.extra["rows_quarantined"] == 10
    assert waiting == {"nightly_scoring_follow_up"}


def test_monitor_that_fails_leaves_the_night_a_success(home, fake_jobs, published):
    fake_jobs.answer("score", result=published("tickets", "2026-11-28"))
    fake_jobs.answer("monitor", exit_code=1, output="12:00:00 ERROR   a bug")
    run = DagBag(str(DAGS)).dags["nightly_scoring_tickets"].test(logical_date=NIGHT)
    assert run.state == "success"
    assert states_of(run)["monitor"] == "skipped"


def test_night_whose_input_does_not_come_ends_before_it_is_checked(home, fake_jobs, notices):
    (home / "tasks").mkdir()
    text = (DAGS.parent / "schemas" / "tasks" / "tickets.yaml").read_text()
    (home / "tasks" / "tickets.yaml").write_text(
        text + "schedule: {late: {wait_minutes: 0.001, poll_minutes: 0.001}}\n"
    )
    fake_jobs.answer("arrived", result={"missing": ["2026-11-28"], "location": "in/*.csv"})

    run = DagBag(str(DAGS)).dags["nightly_scoring_tickets"].test(logical_date=NIGHT)

    assert run.state == "failed"
    states = states_of(run)
    assert (states["wait_for_input"], states["validate"]) == ("failed", "upstream_failed")
    assert {call[0] for call in fake_jobs.calls()} == {"arrived"}
    (notice,) = notices
    assert "no input for 2026-11-28 after 0.001 minutes: nothing matches in/*.csv" in notice


def test_verdict_starts_a_retraining_and_scores_late_dates_again_once(home, fake_jobs):
    fake_jobs.answer(
        "monitor",
        result={
            "changed": ["2026-11-26", "2026-11-27"],
            "retrain": {"granted": True, "reason": "macro-F1 of head queue 0.6, it was 0.8"},
        },
    )
    dag = DagBag(str(DAGS)).dags["monitor"]
    first = dag.test(logical_date=NIGHT)
    assert first.state == "success"
    dag.test(logical_date=NIGHT)  # cleared, and run again

    with create_session() as session:
        runs = session.scalars(select(DagRun).where(DagRun.dag_id != "monitor")).all()
        started = {run.run_id: (run.dag_id, run.conf) for run in runs if "2026-11-28" in run.run_id}
    late = {
        f"late__{day}__seen_2026-11-28": (f"nightly_scoring_{name}", {"date": day})
        for name in ("reviews", "tickets")
        for day in ("2026-11-26", "2026-11-27")
    }
    reason = "macro-F1 of head queue 0.6, it was 0.8"
    asked = {
        f"monitor__{name}__2026-11-28": ("retrain", {"task": name, "reason": reason})
        for name in ("reviews", "tickets")
    }
    assert {run: started[run] for run in asked} == asked
    assert started.keys() == asked.keys() | late.keys()
    claims = {tuple(call[1:6]) for call in fake_jobs.calls()}
    assert ("tickets", "--date", "2026-11-28", "--claim", "monitor__tickets__2026-11-28") in claims


def test_verdict_that_asks_for_nothing_starts_nothing(home, fake_jobs):
    answer = {"changed": [], "retrain": {"granted": False, "reason": "the verdict is ok"}}
    fake_jobs.answer("monitor", result=answer)
    run = DagBag(str(DAGS)).dags["monitor"].test(logical_date=datetime(2026, 11, 2, tzinfo=UTC))
    assert run.state == "success"
    states = states_of(run)
    assert (states["look_tickets"], states["granted_tickets"]) == ("success", "skipped")
    assert (states["retrain_tickets"], states["rescore_tickets"]) == ("skipped", "skipped")


def test_pretraining_ends_with_the_address_of_the_backbone(home, fake_jobs):
    fake_jobs.answer("pretrain", result={"address": "path:there", "run": "r"})
    conf = {"task": "tickets", "epochs": 2, "new_words": 0, "whole_words": True}
    run = DagBag(str(DAGS)).dags["continue_pretraining"].test(run_conf=conf, logical_date=None)
    assert run.state == "success"
    (call,) = fake_jobs.calls()
    assert call[:3] == ["pretrain", "tickets", "--run"]
    assert call[4:7] == [
        "pretrain.epochs=2", "pretrain.new_tokens=0", "pretrain.whole_word=true",
    ]  # fmt: skip


class JobsHere:
    """Runs each job in this process, where Ray need not start; shows each error of ours."""

    def run(self, command, *, environment, on_line):
        from jobs.__main__ import app

        done = CliRunner().invoke(app, list(command[3:]))
        told = [line for line in done.output.splitlines() if "Error" in line]
        for line in told:
            on_line(line)
        return Outcome(done.exit_code, told[-1] if told else "")

    def stop(self):
        raise AssertionError("no job of this test is to be stopped")


@pytest.fixture
def jobs_here(monkeypatch):
    """Real jobs in this process; their workers too, one shard after the other."""
    import jobs.ray_session
    import jobs.scoring
    from dags.operators import job

    def score_shards(work, *, bundle, task, model, cleaner_version, workers, saving, plans):
        worker = jobs.scoring.ShardWorker(bundle, task, model, cleaner_version, saving, plans)
        for item in work:
            yield worker(item.to_row())

    monkeypatch.setattr(jobs.scoring, "score_shards", score_shards)
    monkeypatch.setattr(jobs.ray_session, "ray_session", lambda **_: nullcontext())
    monkeypatch.setattr(job, "SubprocessRunner", JobsHere)
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", "text")
    # A job sets up the logging of its process, which is this one.
    before = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = before


@pytest.fixture
def notices(monkeypatch):
    """What people were told."""
    told = []
    monkeypatch.setattr(
        "dags.nightly.notices.notify", lambda message, **addressed: told.append(message)
    )
    return told


@pytest.fixture
def tiny_nights(home, tiny_task, tiny_bundle):
    """Eight nights of a tiny task; the file of the last one is no JSON at all."""
    raw = tiny_task.model_dump(mode="json")
    raw["score"] |= {"model": f"path:{tiny_bundle}", "workers": 1}
    (home / "tasks").mkdir()
    (home / "tasks" / "tiny.yaml").write_text(yaml.safe_dump(raw))
    for number, day in enumerate(DAYS):
        path = home / f"incoming/tiny/date={day}/rows.jsonl"
        path.parent.mkdir(parents=True)
        rows = [
            {"ticket_id": f"{day}-{row}", "subject": "invoice", "body": "late parcel " * (row + 1)}
            for row in range(4 + number)
        ]
        lines = [json.dumps(row) for row in rows] if day != BROKEN else ["{cut o"] * 6
        path.write_text("\n".join(lines) + "\n")
    return home


class SmallScheduler:
    """Airflow's own backfill and its own choice of runs; the tasks run here, one after the other.

    The scheduler's loop without its processes: which runs may start it decides itself, under the
    backfill's bound, and then each running run advances by its tasks that are ready.
    """

    def __init__(self, dag):
        self.dag, self.most_at_once, self.at_once = dag, 0, []
        self._scheduler = SchedulerJobRunner(job=Job())

    def backfill(self, first, last, *, at_once):
        _create_backfill(
            dag_id=self.dag.dag_id, from_date=first, to_date=last, max_active_runs=at_once,
            reverse=False, dag_run_conf={}, triggering_user_name="ada",
        )  # fmt: skip
        while self._step():
            pass

    def _step(self):
        with create_session() as session:
            self._scheduler._start_queued_dagruns(session)
        with create_session() as session:
            of_this = select(DagRun).where(DagRun.dag_id == self.dag.dag_id)
            running = session.scalars(of_this.where(DagRun.state == DagRunState.RUNNING)).all()
            self.most_at_once = max(self.most_at_once, len(running))
            ready = [instance for run in running for instance in self._ready(run, session)]
        for instance in ready:
            _run_task(ti=instance, task=self.dag.get_task(instance.task_id))
        return bool(running)

    def _ready(self, run, session):
        run.dag = SerializedDagModel.get_dag(self.dag.dag_id, session=session)
        ready, _ = run.update_state(session=session, execute_callbacks=False)
        for instance in ready:
            instance.try_number += 1
            instance.state = TaskInstanceState.SCHEDULED
        session.flush()
        return ready


@pytest.mark.timeout(600)  # thirty-two jobs in one process
def test_backfill_of_eight_dates_two_at_a_time_publishes_all_but_the_broken_one(
    tiny_nights, jobs_here, notices
):
    dag = store_dags()["nightly_scoring_tiny"]
    switch_on(dag.dag_id)
    scheduler = SmallScheduler(dag)

    scheduler.backfill(
        datetime(2026, 11, 20, 2, tzinfo=UTC), datetime(2026, 11, 27, 2, tzinfo=UTC), at_once=2
    )

    assert scheduler.most_at_once == 2
    with create_session() as session:
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id)).all()
        states = {str(run.logical_date.date()): run.state for run in runs}
    assert states == dict.fromkeys(DAYS[:-1], "success") | {BROKEN: "failed"}
    manifests = {
        path.parent.name: PartitionManifest.read(path)
        for path in (tiny_nights / "scores" / "tiny").glob("date=*/manifest.json")
    }
    assert sorted(manifests) == [f"date={day}" for day in DAYS[:-1]]
    assert [manifests[f"date={day}"].counters.rows_scored for day in DAYS[:-1]] == [
        4, 5, 6, 7, 8, 9, 10,
    ]  # fmt: skip
    (message,) = notices
    assert f"task validate, date {BROKEN}: the data break their contract" in message
    assert "6 of 6 rows rejected, 6 invalid_json" in message
    assert "tell the owner of the data; once they are mended, clear the task" in message
    assert f"by hand: nightmill validate tiny --date {BROKEN} --through {BROKEN}" in message
