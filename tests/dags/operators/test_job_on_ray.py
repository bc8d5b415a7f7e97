"""The operator with a cluster: one job at a time, joined, answered, replaced or stopped."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from dags.operators.answer import MAX_RESULT_BYTES
from dags.operators.ray_address import RayAddress
from dags.operators.ray_cluster import ClusterRefusesError, RayJob

THIN = """
import sys
from dags.operators.job import JobOperator
from dags.operators.ray_cluster import _client_class
_client_class()
heavy = {"torch", "ray.data", "ray.train", "mlflow", "pandas", "pyarrow", "onnxruntime"}
print(sorted(heavy & set(sys.modules)))
"""


def test_sends_the_command_line_and_returns_the_result(home, cluster, on_ray, context_of):
    cluster.plan(result={"rows": 7})

    result = on_ray(arguments=["tickets", "--date", "2026-11-28"]).execute(context_of())

    assert result == {"rows": 7}
    (order,) = cluster.orders
    assert order.submission_id.startswith("nightly-score-scheduled__2026-11-28T02-00-00-00-00-")
    folder = home / "ray-jobs" / order.submission_id
    assert shlex.split(order.entrypoint) == [
        "exec", "python", "-m", "jobs", "score", "tickets", "--date", "2026-11-28",
        "--home", str(home), "--result", str(folder / "result.json"),
    ]  # fmt: skip
    assert order.environment["NIGHTMILL_LEASE"] == str(folder / "lease.json")
    assert order.environment["NIGHTMILL_LEASE_S"] == "180"
    assert order.environment["NIGHTMILL_LOG_FORMAT"] == "text"


def test_log_of_the_job_comes_into_the_task_log(cluster, on_ray, context_of, monkeypatch):
    cluster.plan()
    job = on_ray()
    lines = []
    monkeypatch.setattr(type(job), "log", Recorder(lines))

    job.execute(context_of())

    (submission_id,) = cluster.submitted
    assert lines == [
        f"job {submission_id} on Ray at http://head:8265",
        f"log of {submission_id}",
        "second line",
    ]


class Recorder:
    """Stands in for a logger; keeps what was said at `info`."""

    def __init__(self, lines):
        self.lines = lines

    def info(self, message, *values, **_):
        self.lines.append(message % values)

    def debug(self, *_, **__):
        pass

    warning = debug


def test_what_the_processes_hold_is_passed_on(cluster, on_ray, context_of):
    cluster.plan()
    job = on_ray()
    job.ray = replace(job.ray, num_cpus=1, memory_bytes=1 << 30, resources={"head": 0.1})
    job.execute(context_of())
    order = cluster.orders[0]
    assert (order.num_cpus, order.memory_bytes, order.resources) == (1, 1 << 30, {"head": 0.1})


def test_failure_12_a_retry_joins_the_job_that_is_alive(cluster, on_ray, context_of, store):
    """The task process was killed; Airflow tries again and must not start a second job."""
    for _ in range(3):
        with pytest.raises(TaskDeferred):
            on_ray(deferrable=True).execute(context_of(store=store))
    assert len(cluster.orders) == 1

    cluster.end(cluster.submitted[0], exit_code=0, result={"rows": 3})
    assert on_ray().execute(context_of(store=store)) == {"rows": 3}
    assert len(cluster.orders) == 1


def test_failure_12_killed_between_submission_and_storing_its_id(cluster, on_ray, context_of):
    """Nothing is in the state store, but the id says it all."""
    first = on_ray()
    first._join(_address(), context_of())
    submission_id = first.submit_job(context_of())

    ends_after_looks(cluster, submission_id, 5, result={"rows": 4})
    assert on_ray().execute(context_of()) == {"rows": 4}
    assert cluster.submitted == [submission_id]


def test_failure_12_two_at_once_start_one_job(cluster, on_ray, context_of, store):
    """The scheduler sent the task twice: both wait for the same job."""
    cluster.on_look = barrier_once(2)
    results = []
    tasks = [
        threading.Thread(target=lambda: results.append(on_ray().execute(context_of(store=store))))
        for _ in range(2)
    ]
    for task in tasks:
        task.start()
    wait_for(lambda: len(cluster.orders) == 1 and cluster.looks > 8)
    cluster.end(cluster.submitted[0], exit_code=0, result={"rows": 5})
    for task in tasks:
        task.join(timeout=30)
    assert results == [{"rows": 5}] * 2
    assert len(cluster.orders) == 1


def test_failure_12_an_answer_that_is_lost_starts_nothing_twice(cluster, on_ray, context_of):
    cluster.loses_answers = True
    cluster.plan(result={"rows": 6})
    assert on_ray().execute(context_of()) == {"rows": 6}
    assert len(cluster.orders) == 1


def test_retry_after_success_takes_its_result(cluster, on_ray, context_of, store):
    cluster.plan(result={"rows": 8})
    for _ in range(2):
        assert on_ray().execute(context_of(store=store)) == {"rows": 8}
    assert len(cluster.orders) == 1


def test_retry_after_failure_submits_under_the_next_id(cluster, on_ray, context_of, store):
    cluster.plan(exit_code=5, error="ShardError: 2 of 9 failed")
    cluster.plan(exit_code=75, error="TransientError: no")
    cluster.plan(result={"rows": 9})
    for match in ("2 of 9 failed", "TransientError"):
        with pytest.raises(AirflowException, match=match):
            on_ray().execute(context_of(store=store))
    assert on_ray().execute(context_of(store=store)) == {"rows": 9}
    first = cluster.submitted[0]
    assert cluster.submitted == [first, f"{first}-2", f"{first}-3"]


@pytest.mark.parametrize("change", [{"max_tries": 3}, {"began": 2}], ids=["cleared", "made anew"])
def test_task_that_is_cleared_after_success_runs_again(cluster, on_ray, context_of, store, change):
    cluster.plan(result={"rows": 1})
    cluster.plan(result={"rows": 2})
    on_ray().execute(context_of(store=store))
    assert on_ray().execute(context_of(store=store, **change)) == {"rows": 2}
    assert len(cluster.orders) == 2


def test_other_arguments_end_the_job_that_has_the_old_ones(cluster, on_ray, context_of):
    first = on_ray(arguments=["tickets", "--date", "2026-11-27"])
    first._join(_address(), context_of())
    old = first.submit_job(context_of())
    cluster.plan(result={"rows": 2})

    assert on_ray(arguments=["tickets"]).execute(context_of()) == {"rows": 2}

    assert cluster.stopped == [old]
    assert cluster.submitted == [old, f"{old}-2"]


def test_cluster_that_forgot_the_job_gets_it_under_a_new_id(cluster, on_ray, context_of, store):
    """What outlived the old cluster must not live on by the new job's lease."""
    first = on_ray(deferrable=True)
    with pytest.raises(TaskDeferred):
        first.execute(context_of(store=store))
    (old,) = cluster.submitted
    cluster.jobs.clear()
    cluster.plan(result={})

    on_ray().execute(context_of(store=store))

    assert cluster.submitted == [old, f"{old}-2"]
    assert (
        cluster.orders[0].environment["NIGHTMILL_LEASE"]
        != (cluster.orders[1].environment["NIGHTMILL_LEASE"])
    )


def test_failure_13_kill_stops_the_job(cluster, on_ray, context_of):
    """Cleared, marked as failed, or timed out while a worker waits for it."""
    job = on_ray()
    cluster.on_look = after_looks(4, job.on_kill)

    with pytest.raises(AirflowException, match="job 'score': it was stopped on the Ray cluster"):
        job.execute(context_of())

    assert cluster.stopped == cluster.submitted


def test_failure_13_next_try_waits_for_the_stopped_job_and_starts_another(
    cluster, on_ray, context_of, store
):
    """Right after the clearing the old job still runs; joining it would be joining its end."""
    job = on_ray(deferrable=True)
    with pytest.raises(TaskDeferred):
        job.execute(context_of(store=store))
    (old,) = cluster.submitted
    job._remote.stop()
    cluster.jobs[old] = RayJob("RUNNING", entrypoint=cluster.orders[0].entrypoint)
    cluster.plan(result={"rows": 1})

    assert on_ray().execute(context_of(store=store)) == {"rows": 1}
    assert cluster.submitted == [old, f"{old}-2"]


def test_kill_leaves_a_job_alone_that_a_later_try_has_joined(cluster, on_ray, context_of):
    early, late = on_ray(deferrable=True), on_ray(deferrable=True)
    for job in (early, late):
        with pytest.raises(TaskDeferred):
            job.execute(context_of())
    early.on_kill()
    assert cluster.stopped == []
    late.on_kill()
    assert cluster.stopped == cluster.submitted


def test_kill_without_a_cluster_that_answers_is_harmless(cluster, on_ray, context_of):
    job = on_ray(deferrable=True)
    with pytest.raises(TaskDeferred):
        job.execute(context_of())
    cluster.away = True
    job.on_kill()
    assert cluster.stopped == []


@pytest.mark.slow
def test_failure_14_the_task_process_stays_thin():
    """The kernel kills who is large: the work is elsewhere, and none of its modules is here."""
    done = subprocess.run(
        [sys.executable, "-c", THIN], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


@pytest.mark.parametrize(
    ("code", "ending"),
    [(-9, "killed by signal 9"), (137, "killed by signal 9"), (143, "killed by signal 15")],
)
def test_failure_14_a_job_that_the_kernel_killed_is_tried_again(
    cluster, on_ray, context_of, code, ending
):
    cluster.plan(exit_code=code, error="scoring")
    with pytest.raises(AirflowException, match=rf"job 'score': scoring \({ending}\)") as caught:
        on_ray().execute(context_of())
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("code", [5, 75])
def test_failure_15_passing_trouble_is_tried_again(cluster, on_ray, context_of, code):
    cluster.plan(exit_code=code, error="ShardError: 2 of 9 failed")
    with pytest.raises(AirflowException, match=rf"2 of 9 failed \(exit code {code}\)$") as caught:
        on_ray().execute(context_of())
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 99])
def test_failure_15_lasting_trouble_fails_at_once(cluster, on_ray, context_of, code):
    """Another run of the same data breaks the same contract."""
    cluster.plan(exit_code=code, error="DataContractError: 3 columns missing")
    with pytest.raises(AirflowFailException, match=rf"3 columns missing \(exit code {code}\)$"):
        on_ray().execute(context_of())


def test_job_that_ray_could_not_run_is_tried_again(cluster, on_ray, context_of):
    cluster.plan(exit_code=1)
    job = on_ray()
    cluster.on_look = after_looks(2, lambda: lost(cluster))
    with pytest.raises(AirflowException, match="Ray did not run it to its end: JOB_SUPERVISOR"):
        job.execute(context_of())


def test_failure_16_the_result_is_small(cluster, on_ray, context_of, store):
    frame = len('{"x": ""}')
    cluster.plan(result={"x": "a" * (MAX_RESULT_BYTES - frame)})
    assert len(on_ray().execute(context_of())["x"]) == MAX_RESULT_BYTES - frame

    cluster.plan(result={"x": "a" * (MAX_RESULT_BYTES - frame + 1)})
    with pytest.raises(AirflowFailException, match=r"job 'score': its result has 16385 bytes"):
        on_ray().execute(context_of(run_id="other"))


def test_result_that_is_not_seen_here_asks_for_a_shared_folder(cluster, on_ray, context_of):
    cluster.plan()
    job = on_ray()
    job.ray = replace(job.ray, shared_lag_s=0.2)
    cluster.on_look = after_looks(2, lambda: job.remote.result_file(cluster.submitted[0]).unlink())
    with pytest.raises(AirflowFailException, match="on a folder that the cluster shares"):
        job.execute(context_of())


def test_cluster_that_is_away_is_tried_again(cluster, on_ray, context_of):
    cluster.away = True
    with pytest.raises(AirflowException, match="'score': Ray at http://head:8265 does not") as got:
        on_ray().execute(context_of())
    assert not isinstance(got.value, AirflowFailException)


def test_cluster_that_is_away_for_a_moment_is_waited_for(cluster, on_ray, context_of):
    job = on_ray()
    job.ray = replace(job.ray, away_s=30)

    def falter():
        cluster.away = cluster.looks in {3, 4}
        if cluster.looks == 6:
            cluster.end(cluster.submitted[0], exit_code=0, result={"rows": 1})

    cluster.on_look = falter
    assert job.execute(context_of()) == {"rows": 1}


def test_cluster_that_refuses_fails_at_once(cluster, on_ray, context_of, monkeypatch):
    def refuse(_):
        raise ClusterRefusesError("Ray at http://head:8265 asks for a token")

    monkeypatch.setattr(cluster, "look", refuse)
    with pytest.raises(AirflowFailException, match="'score': Ray at http://head:8265 asks for a"):
        on_ray().execute(context_of())


def _address():
    return RayAddress.of_url("http://head:8265")


def lost(cluster):
    (submission_id,) = cluster.submitted
    cluster.jobs[submission_id] = RayJob(
        "FAILED",
        error="JOB_SUPERVISOR_ACTOR_DIED: node is gone",
        entrypoint=cluster.orders[0].entrypoint,
    )


def after_looks(count, then):
    """Does `then` once, at the look after `count` others."""
    left = [count]

    def look():
        left[0] -= 1
        if left[0] == 0:
            then()

    return look


def ends_after_looks(cluster, submission_id, count, *, result):
    cluster.on_look = after_looks(
        count, lambda: cluster.end(submission_id, exit_code=0, result=result)
    )


def barrier_once(parties):
    """Makes the first look of each of so many threads wait for the others."""
    barrier, waited = threading.Barrier(parties, timeout=30), threading.local()

    def look():
        if not getattr(waited, "done", False):
            waited.done = True
            barrier.wait()

    return look


def wait_for(condition, *, limit_s=30.0):
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert condition()
