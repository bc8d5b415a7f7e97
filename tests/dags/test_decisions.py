"""The small decisions that DAG tasks take themselves, without a running Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags import nightly_scoring, retrain

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


def decide(monkeypatch, *, approval, answer=None):
    context = {
        "params": {"task": "tickets", "approval": approval},
        "dag_run": SimpleNamespace(run_id="manual__1", triggering_user_name="grace"),
        "ti": SimpleNamespace(xcom_pull=lambda task_ids: answer),
    }
    monkeypatch.setattr(retrain, "get_current_context", lambda: context)
    return retrain.decide.function({"version": "4"})


def test_without_approval_the_one_who_pressed_the_button_answers_for_it(monkeypatch):
    assert decide(monkeypatch, approval=False) == [
        "tickets", "--version", "4", "--approver", "grace",
        "--reason", "no approval asked, manual__1",
    ]  # fmt: skip


@pytest.mark.parametrize("user", [{"id": "1", "name": "ada"}, SimpleNamespace(id="1", name="ada")])
def test_approval_carries_name_and_reason(monkeypatch, user):
    answer = {
        "chosen_options": ["Approve"],
        "params_input": {"reason": "better on returns"},
        "responded_by_user": user,
    }
    assert decide(monkeypatch, approval=True, answer=answer) == [
        "tickets", "--version", "4", "--approver", "ada", "--reason", "better on returns",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "answer", [None, {}, {"chosen_options": ["Reject"]}, {"chosen_options": []}]
)
def test_no_approval_no_promotion(monkeypatch, answer):
    with pytest.raises(AirflowSkipException, match="nobody approved"):
        decide(monkeypatch, approval=True, answer=answer)
