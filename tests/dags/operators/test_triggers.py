from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from dags.operators.ray_cluster import ClusterRefusesError


@pytest.fixture
def deferred(cluster, on_ray, context_of):
    """A task that waits in the triggerer: its operator's next try, and its trigger."""
    with pytest.raises(TaskDeferred) as caught:
        on_ray(deferrable=True).execute(context_of())
    return caught.value


def trigger_of(deferred):
    """The trigger as the triggerer makes it from what was stored."""
    path, kwargs = deferred.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**kwargs)


def event_of(trigger):
    async def first():
        return [event.payload async for event in trigger.run()]

    (payload,) = asyncio.run(asyncio.wait_for(first(), 30))
    return payload


def test_result_comes_through_the_trigger(cluster, on_ray, context_of, deferred):
    (submission_id,) = cluster.submitted
    left = [3]

    def end_later():
        left[0] -= 1
        if left[0] == 0:
            cluster.end(submission_id, exit_code=0, result={"rows": 2})

    cluster.on_look = end_later
    event = event_of(trigger_of(deferred))

    assert deferred.method_name == "resume"
    assert (event["submission_id"], event["job"]["status"]) == (submission_id, "SUCCEEDED")
    assert on_ray(deferrable=True).resume(context_of(), event) == {"rows": 2}


def test_log_comes_at_the_end(cluster, on_ray, context_of, deferred, monkeypatch):
    (submission_id,) = cluster.submitted
    cluster.end(submission_id, exit_code=0, result={})
    event = event_of(trigger_of(deferred))
    job, lines = on_ray(), []
    log = SimpleNamespace(info=lambda message, *values: lines.append(message % values))
    monkeypatch.setattr(type(job), "log", log)

    job.resume(context_of(), event)

    assert lines == [f"log of {submission_id}", "second line"]


def test_log_that_cannot_be_had_does_not_take_the_result(cluster, on_ray, context_of, deferred):
    cluster.end(cluster.submitted[0], exit_code=0, result={"rows": 2})
    event = event_of(trigger_of(deferred))
    cluster.away = True
    assert on_ray().resume(context_of(), event) == {"rows": 2}


@pytest.mark.parametrize(
    ("code", "kind"), [(5, AirflowException), (75, AirflowException), (3, AirflowFailException)]
)
def test_failure_15_exit_codes_come_through_the_trigger(
    cluster, on_ray, context_of, deferred, code, kind
):
    cluster.end(cluster.submitted[0], exit_code=code, error="Error: such and such")
    event = event_of(trigger_of(deferred))
    with pytest.raises(AirflowException, match=rf"such and such \(exit code {code}\)") as caught:
        on_ray().resume(context_of(), event)
    assert type(caught.value) is kind


def test_cluster_that_is_lost_is_tried_again(cluster, on_ray, context_of, deferred):
    cluster.away = True
    event = event_of(trigger_of(deferred))
    with pytest.raises(AirflowException, match="does not answer") as caught:
        on_ray().resume(context_of(), event)
    assert not isinstance(caught.value, AirflowFailException)


def test_cluster_that_refuses_fails_at_once(cluster, on_ray, context_of, deferred, monkeypatch):
    def refuse(_):
        raise ClusterRefusesError("asks for a token")

    monkeypatch.setattr(cluster, "look", refuse)
    event = event_of(trigger_of(deferred))
    with pytest.raises(AirflowFailException, match="asks for a token"):
        on_ray().resume(context_of(), event)


def test_failure_13_a_person_who_clears_the_deferred_task_stops_the_job(cluster, deferred):
    """`on_kill` of the operator is not called: no worker holds the task."""
    asyncio.run(trigger_of(deferred).on_kill())
    assert cluster.stopped == cluster.submitted


def test_failure_13_a_triggerer_that_stops_leaves_the_job(cluster, deferred):
    """Another triggerer goes on with it; `cleanup` runs then, `on_kill` does not."""

    async def cancelled():
        trigger = trigger_of(deferred)
        task = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await trigger.cleanup()

    asyncio.run(cancelled())
    assert cluster.stopped == []


def test_trigger_of_an_earlier_try_stops_nothing(cluster, on_ray, context_of, deferred):
    with pytest.raises(TaskDeferred):
        on_ray(deferrable=True).execute(context_of())
    asyncio.run(trigger_of(deferred).on_kill())
    assert cluster.stopped == []


def test_trigger_renews_the_lease_in_its_owners_name(cluster, deferred):
    lease = trigger_of(deferred).lease
    assert lease.is_own()
    assert lease.file.parent.name == cluster.submitted[0]
    assert lease.lease_s == 180


def test_what_viewers_see_of_the_trigger_has_no_password(cluster, on_ray, context_of):
    with pytest.raises(AirflowFailException, match="put it into an Airflow connection"):
        on_ray(deferrable=True, ray_address="http://a:s3cret@head:8265").execute(context_of())


def test_address_that_is_gone_meanwhile_is_said(cluster, on_ray, context_of, deferred):
    with pytest.raises(AirflowException, match="the Ray address is gone since"):
        on_ray(ray_address="local").resume(context_of(), {"submission_id": "x"})


@pytest.mark.parametrize(("setting", "expected"), [("True", True), ("False", False)])
def test_airflows_own_setting_makes_tasks_deferrable(on_ray, monkeypatch, setting, expected):
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", setting)
    assert on_ray().deferrable is expected
    assert on_ray(deferrable=not expected).deferrable is not expected
