"""The task that waits for a person, without a running Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import Param

from dags.retraining.approval import PromotionApproval


@pytest.fixture
def asked(monkeypatch):
    """What is written for people to answer."""
    written = {}
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: written.update(detail))
    return written


@pytest.fixture
def task():
    approval = PromotionApproval(
        task_id="approve",
        subject="Promote?",
        body="",
        params={"reason": Param("", type=["string", "null"])},
        defaults="Reject",
        response_timeout=timedelta(hours=24),
    )
    approval.params._fill_missing_param_source("task")
    return approval


def context_of(task, *, hours=24):
    pushed = {}
    instance = SimpleNamespace(
        id="0",
        xcom_pull=lambda *, task_ids: {"version": 3},
        xcom_push=lambda *, key, value: pushed.update({key: value}),
    )
    return {
        "params": {"approval_hours": hours},
        "ti": instance,
        "task_instance": instance,
        "task": task,
    }, pushed


def test_it_waits_as_long_as_the_form_says_and_keeps_what_it_asked_about(task, asked):
    context, pushed = context_of(task, hours=5)
    with pytest.raises(hitl.TaskAwaitingInput) as waiting:
        task.execute(context)
    assert waiting.value.timeout == timedelta(hours=5)
    assert pushed == {"asked_version": "3"}
    assert asked["options"] == ["Approve", "Reject"]
    assert asked["defaults"] == ["Reject"]


def test_why_the_run_was_started_is_not_offered_as_the_reason_of_the_answer(task, asked):
    task.params["reason"] = "drift in channel"  # as Airflow fills it in from the run
    with pytest.raises(hitl.TaskAwaitingInput):
        task.execute(context_of(task)[0])
    assert asked["params"]["reason"]["value"] == ""


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_either_answer_leaves_what_comes_next_to_the_decision(task, option):
    event = {
        "chosen_options": [option],
        "params_input": {"reason": "numbers"},
        "responded_at": datetime(2026, 11, 30, tzinfo=UTC),
        "responded_by_user": {"id": "1", "name": "ada"},
        "timedout": False,
    }
    context, _ = context_of(task)
    answer = task.execute_complete(context, event)  # Airflow's own would skip what follows
    assert answer["chosen_options"] == [option]
    assert answer["params_input"] == {"reason": "numbers"}
    assert answer["responded_by_user"] == {"id": "1", "name": "ada"}
    assert task.hitl_summary["approved"] is (option == "Approve")
