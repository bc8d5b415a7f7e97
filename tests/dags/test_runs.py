"""Whole runs of the DAGs in one process; an interpreter that plays the jobs answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb

from dags.retraining.plan import run_name

pytestmark = pytest.mark.slow

DAGS = Path(__file__).resolve().parents[2] / "dags"
NIGHT = datetime(2026, 11, 28, 2, tzinfo=UTC)
BUNDLED = {"run": "r", "digest": "d" * 64, "variant": "int8_static", "metrics": {}, "gates": []}


@pytest.fixture(scope="module", autouse=True)
def database():
    initdb()


def run(dag_id, *, conf=None, logical_date=None):
    result = DagBag(str(DAGS)).dags[dag_id].test(run_conf=conf or {}, logical_date=logical_date)
    states = {task.task_id: task.state for task in result.get_task_instances()}
    tries = {task.task_id: task.try_number for task in result.get_task_instances()}
    return result, states, tries


@pytest.fixture
def trained(fake_jobs):
    fake_jobs.answer("finetune", result={"run": "r", "metrics": {"f1": 0.9}})
    fake_jobs.answer("bundle", result=BUNDLED)
    fake_jobs.answer("register", result={"name": "tickets", "version": "3", "run_id": "x"})
    fake_jobs.answer("promote", result={"name": "tickets", "version": "3", "previous": "2"})
    return fake_jobs


def test_night_runs_its_jobs_for_its_date(home, fake_jobs, published):
    fake_jobs.answer("score", result=published("tickets", "2026-11-28"))

    result, _, _ = run("nightly_scoring_tickets", logical_date=NIGHT)

    assert result.state == "success"
    rest = ["tickets", "--date", "2026-11-28", "--through", "2026-11-28"]
    calls = fake_jobs.calls()
    assert [call[0] for call in calls[:2]] == ["validate", "score"]
    assert {call[0] for call in calls[2:]} == {"report", "monitor"}
    assert {tuple(call[1:]) for call in calls} == {(*rest, "--home", str(home), "--result")}


def test_night_for_a_range_that_the_form_names(home, fake_jobs, published):
    days = ("2026-11-01", "2026-11-02", "2026-11-03")
    fake_jobs.answer("score", result=published("reviews", *days))
    conf = {"date": "2026-11-01", "through": "2026-11-03"}

    result, _, _ = run("nightly_scoring_reviews", conf=conf)

    assert result.state == "success"
    assert fake_jobs.calls()[1][:6] == [
        "score", "reviews", "--date", "2026-11-01", "--through", "2026-11-03",
    ]  # fmt: skip


def test_night_without_a_date_runs_no_job(home, fake_jobs):
    result, states, _ = run("nightly_scoring_tickets")
    assert result.state == "failed"
    assert states["resolve_dates"] == "failed"
    assert fake_jobs.calls() == []


def test_broken_contract_ends_the_night_at_once(home, fake_jobs):
    fake_jobs.answer("validate", exit_code=3)
    result, states, tries = run("nightly_scoring_tickets", logical_date=NIGHT)
    assert result.state == "failed"
    assert (states["validate"], tries["validate"]) == ("failed", 1)
    assert states["score"] == states["publish"] == states["report"] == "upstream_failed"
    assert [call[0] for call in fake_jobs.calls()] == ["validate"]


def test_retrain_without_approval_promotes(home, trained):
    conf = {"task": "tickets", "approval": False, "epochs": 2, "precision": "int8_static"}

    result, states, _ = run("retrain", conf=conf)

    assert result.state == "success"
    assert states["approve"] == states["reject"] == "skipped"
    base = ["tickets", "--run", run_name(result.run_id)]
    where = ["--home", str(home), "--result"]
    assert trained.calls() == [
        ["finetune", *base, "train.epochs=2", *where],
        ["bundle", *base, "train.epochs=2", "compress.prefer=[int8_static]", *where],
        ["register", *base, *where],
        [
            *("promote", "tickets", "--version", "3", "--approver", "dag_test"),
            *("--reason", f"no approval asked, {result.run_id}", *where),
        ],
    ]


def test_failed_gate_is_not_retried_and_promotes_nothing(home, trained):
    trained.answer("bundle", exit_code=4, output="12:00:00 ERROR   ArtifactError: gate failed")

    result, states, tries = run("retrain", conf={"task": "tickets", "approval": False})

    assert result.state == "failed"
    assert (states["bundle"], tries["bundle"]) == ("failed", 1)
    assert states["promote"] == states["decide"] == "upstream_failed"
    assert [call[0] for call in trained.calls()] == ["finetune", "bundle"]


def test_broken_task_file_fails_its_own_run(home, fake_jobs):
    (home / "tasks").mkdir()
    (home / "tasks" / "chats.yaml").write_text("name: [")
    result, states, _ = run("nightly_scoring_chats", logical_date=NIGHT)
    assert (result.state, states) == ("failed", {"load_task": "failed"})
