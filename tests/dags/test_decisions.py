"""The small decisions that DAG tasks take themselves, without a running Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags import nightly_scoring, retrain
from dags.retraining.form import form

NIGHT = datetime(2026, 11, 28, 2, tzinfo=UTC)


def dates_of(monkeypatch, *, params=None, partition_key=None, logical_date=None):
    run = SimpleNamespace(partition_key=partition_key, logical_date=logical_date)
    context = {"params": {"date": "", "through": "", **(params or {})}, "dag_run": run}
    monkeypatch.setattr(nightly_scoring, "get_current_context", lambda: context)
    return nightly_scoring.dates_of_run.function()


def test_parameter_wins_over_key_and_logical_date(monkeypatch):
    dates = dates_of(
        monkeypatch,
        params={"date": "2026-11-01", "through": "2026-11-03"},
        partition_key="2026-11-10",
        logical_date=NIGHT,
    )
    assert dates == {"first": "2026-11-01", "last": "2026-11-03"}


def test_partition_key_wins_over_logical_date(monkeypatch):
    dates = dates_of(monkeypatch, partition_key="2026-11-10", logical_date=NIGHT)
    assert dates == {"first": "2026-11-10", "last": "2026-11-10"}


def test_logical_date_comes_last(monkeypatch):
    assert dates_of(monkeypatch, logical_date=NIGHT) == {
        "first": "2026-11-28",
        "last": "2026-11-28",
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "no date: this run has no `date` parameter"),
        ({"through": "2026-11-03"}, "params.date is empty"),
        ({"date": "2026-11-03", "through": "2026-11-01"}, "runs backwards"),
    ],
)
def test_run_without_a_sound_date_fails_for_good(monkeypatch, params, message):
    with pytest.raises(AirflowFailException, match=message):
        dates_of(monkeypatch, params=params)


ANSWERED = {
    "chosen_options": ["Approve"],
    "params_input": {"reason": "better on returns"},
    "responded_by_user": {"id": "1", "name": "ada"},
}


class FakeInstance:
    """A task instance with what `approve` left, which keeps what is pushed."""

    def __init__(self, answer, asked):
        self.kept = {None: answer, "asked_version": asked}
        self.pushed = {}

    def xcom_pull(self, *, task_ids, key=None):
        assert task_ids == "approve"
        return self.kept[key]

    def xcom_push(self, *, key, value):
        self.pushed[key] = value


def decide(monkeypatch, *, approval, answer=None, asked="4"):
    instance = FakeInstance(answer, asked)
    context = {
        "params": {"task": "tickets", "approval": approval, "approval_hours": 24},
        "dag_run": SimpleNamespace(run_id="manual__1", triggering_user_name="grace"),
        "ti": instance,
    }
    monkeypatch.setattr(retrain, "get_current_context", lambda: context)
    return retrain.decide.function({"version": 4}), instance.pushed


def test_without_approval_the_starter_s_promotion_comes_next(monkeypatch):
    arguments = [
        "tickets", "--version", "4", "--approver", "grace",
        "--reason", "no approval asked, manual__1",
    ]  # fmt: skip
    assert decide(monkeypatch, approval=False) == ("promote", {"arguments": arguments})


@pytest.mark.parametrize(
    ("option", "task_id", "first"), [("Approve", "promote", []), ("Reject", "reject", ["reject"])]
)
def test_an_answer_chooses_the_task_and_its_arguments(monkeypatch, option, task_id, first):
    answer = ANSWERED | {"chosen_options": [option]}
    arguments = [
        *first, "tickets", "--version", "4", "--approver", "ada", "--reason", "better on returns",
    ]  # fmt: skip
    assert decide(monkeypatch, approval=True, answer=answer) == (
        task_id,
        {"arguments": arguments},
    )


@pytest.mark.parametrize("answer", [None, {}, {"chosen_options": []}])
def test_no_answer_no_decision(monkeypatch, answer):
    with pytest.raises(AirflowSkipException, match="nobody answered about version 4"):
        decide(monkeypatch, approval=True, answer=answer)


def test_a_version_that_came_after_the_answer_is_not_promoted_by_it(monkeypatch):
    with pytest.raises(AirflowSkipException, match="about version 3, registered now is version 4"):
        decide(monkeypatch, approval=True, answer=ANSWERED, asked="3")


def test_a_plan_that_cannot_work_ends_the_run_at_once(home, monkeypatch):
    params = {name: field.value for name, field in form(["tickets"]).items()}
    context = {
        "params": params | {"distil": True},
        "dag_run": SimpleNamespace(run_id="manual__1"),
    }
    monkeypatch.setattr(retrain, "get_current_context", lambda: context)
    with pytest.raises(AirflowFailException, match="task 'tickets' names no teacher"):
        retrain.make_plan.function()
