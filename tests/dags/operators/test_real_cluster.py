"""The operator against Ray's own job API: a head with its dashboard, on free ports."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from dags.operators.ray_address import find_address
from dags.operators.ray_cluster import ClusterRefusesError, RayCluster
from dags.operators.submission import RayOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LIMIT_S = 240.0  # a busy machine; a quiet one takes seconds
# Plays the cluster's interpreter: a job of ours that does what its argument says.
JOB = """\
#!{python}
import os, subprocess, sys, time
from pathlib import Path
from jobs.logs import configure_logging
from jobs.options import Context, run_job
from schemas.errors import DataContractError
from schemas.home import Home

what = sys.argv[4]
home, result = (Path(sys.argv[sys.argv.index(name) + 1]) for name in ("--home", "--result"))

def work(context):
    if what == "break":
        raise DataContractError("3 columns are missing")
    if what == "rows":
        print("scoring", flush=True)
        return {{"rows": 7, "secret": "NOT_LISTED" in os.environ}}
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    with (home / f"began-{{what}}").open("a") as file:
        file.write(f"{{os.getpid()}} {{child.pid}}\\n")
    while not (home / f"go-{{what}}").exists():
        time.sleep(0.1)
    child.kill()
    return {{"rows": 8}}

configure_logging("score")
sys.exit(run_job(work, Context(Home(home), result)))
"""
# A task process that gets as far as waiting for its job.
TASK = """
import sys
from types import SimpleNamespace
from dags.operators.job import JobOperator
from dags.operators.submission import RayOptions
ti = SimpleNamespace(
    dag_id="nightly", task_id="score", run_id="killed", map_index=-1, max_tries=2,
    id="first", stats_tags={},
)
JobOperator(
    task_id="score", job="score", arguments=["wait-a"], ray=RayOptions(python=sys.argv[1]),
).execute({"ti": ti})
"""


@dataclass(frozen=True)
class Head:
    url: str
    token: str
    python: str


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(condition, *, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        threading.Event().wait(0.1)
    return found


@pytest.fixture(scope="module")
def head():
    folder = Path(tempfile.mkdtemp(prefix="nm-ray-"))  # short: Ray's sockets lie in it
    python = folder / "job"
    python.write_text(JOB.format(python=sys.executable))
    python.chmod(0o755)
    token = secrets.token_hex(16)
    gcs, dashboard, *agents, client = free_ports(7)
    names = (
        "dashboard-agent-listen",
        "dashboard-agent-grpc",
        "runtime-env-agent",
        "metrics-export",
    )
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={gcs}",
        "--node-ip-address=127.0.0.1", "--num-cpus=2", "--include-dashboard=true",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}", f"--object-store-memory={128 << 20}",
        f"--temp-dir={folder / 'r'}", "--disable-usage-stats",
        *(f"--{name}-port={port}" for name, port in zip(names, agents, strict=True)),
    ]  # fmt: skip
    # The cluster's own processes, and with them the jobs, must not find Airflow's settings.
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    url = f"http://127.0.0.1:{dashboard}"
    try:
        subprocess.run(command, env=environment, cwd=folder, check=True, timeout=LIMIT_S)
        wait_for(lambda: answers(url, token))
        yield Head(url, token, str(python))
    finally:
        end_all_that_name(folder / "r")
        shutil.rmtree(folder, ignore_errors=True)


def answers(url, token):
    try:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{url}/api/jobs/", headers=headers, timeout=10).ok
    except requests.RequestException:
        return False


def end_all_that_name(folder):
    """Ends the processes that were started with this folder, with all their children."""
    family = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or []):
            family += [process, *process.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=30)


@pytest.fixture
def ray_here(head, home, monkeypatch):
    """Airflow's environment names the cluster by a connection that holds the token."""
    connection = {"conn_type": "http", "host": head.url, "password": head.token}
    monkeypatch.setenv("AIRFLOW_CONN_NIGHTMILL_RAY", json.dumps(split(connection)))
    monkeypatch.setenv("NIGHTMILL_RAY_ADDRESS", "connection:nightmill_ray")
    monkeypatch.setenv("NOT_LISTED", "x")
    return head


def split(connection):
    scheme, _, rest = connection["host"].partition("://")
    host, _, port = rest.partition(":")
    return {**connection, "schema": scheme, "host": host, "port": int(port)}


@pytest.fixture
def job_of(ray_here, on_ray):
    def make(what, *, lease_s=60.0, **kwargs):
        ray = RayOptions(python=ray_here.python, lease_s=lease_s, poll_s=0.5)
        return on_ray(ray_address=None, arguments=[what], ray=ray, **kwargs)

    return make


def family_of(home, what):
    """Process ids of each start of a job and of its child."""
    path = home / f"began-{what}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[int(pid) for pid in line.split()] for line in lines]


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_result_log_and_environment(job_of, context_of, monkeypatch):
    lines = []
    job = job_of("rows")
    monkeypatch.setattr("dags.operators.watch._TAIL_AGAIN_S", 0.2)
    monkeypatch.setattr(type(job), "log", Recorder(lines))

    assert job.execute(context_of(run_id="rows")) == {"rows": 7, "secret": False}
    assert "scoring" in lines


class Recorder:
    def __init__(self, lines):
        self.lines = lines

    def info(self, message, *values, **_):
        self.lines.append(message % values)

    warning = debug = info


def test_failure_15_real_exit_code_reaches_airflow(job_of, context_of):
    with pytest.raises(
        AirflowFailException,
        match=r"^job 'score': DataContractError: 3 columns are missing \(exit code 3\)$",
    ):
        job_of("break").execute(context_of(run_id="break"))


def test_failure_12_retry_joins_the_job_of_a_task_process_that_was_killed(
    job_of, context_of, home, ray_here
):
    with subprocess.Popen([sys.executable, "-c", TASK, ray_here.python]) as task:
        try:
            wait_for(lambda: family_of(home, "wait-a"))
        finally:
            task.kill()
    results = []
    context = context_of(run_id="killed")
    retry = threading.Thread(target=lambda: results.append(job_of("wait-a").execute(context)))
    retry.start()
    lease = home / "ray-jobs"
    wait_for(lambda: str(context["ti"].id) in next(lease.glob("*killed*/lease.json")).read_text())
    (home / "go-wait-a").touch()
    retry.join(timeout=LIMIT_S)

    assert results == [{"rows": 8}]
    assert len(family_of(home, "wait-a")) == 1


def test_failure_13_kill_ends_the_processes_on_the_cluster(job_of, context_of, home):
    job, caught = job_of("wait-b"), []

    def execute():
        try:
            job.execute(context_of(run_id="stopped"))
        except AirflowException as error:
            caught.append(str(error))

    task = threading.Thread(target=execute)
    task.start()
    (family,) = wait_for(lambda: family_of(home, "wait-b"))
    job.on_kill()
    task.join(timeout=LIMIT_S)

    assert caught == ["job 'score': it was stopped on the Ray cluster"]
    wait_for(lambda: not any(is_running(pid) for pid in family))


def test_failure_13_orphan_ends_itself_and_the_next_try_starts_another(job_of, context_of, home):
    """The worker and the triggerer are gone: nobody renews the lease."""
    job = job_of("wait-c", lease_s=2, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        job.execute(context_of(run_id="orphan"))
    submission_id = deferred.value.trigger.submission_id
    (family,) = wait_for(lambda: family_of(home, "wait-c"))

    cluster = RayCluster(find_address(None))
    ended = wait_for(lambda: (found := cluster.look(submission_id)) and found.ended and found)

    assert (ended.status, ended.exit_code) == ("FAILED", 75)
    assert "nobody waits for this job any more" in ended.error
    assert not any(is_running(pid) for pid in family)

    (home / "go-wait-c").touch()
    assert job_of("wait-c").execute(context_of(run_id="orphan")) == {"rows": 8}
    assert len(family_of(home, "wait-c")) == 2


def test_wrong_token_is_no_reason_to_try_again(ray_here):
    address = find_address(f"{ray_here.url}")
    with pytest.raises(ClusterRefusesError, match=f"Ray at {ray_here.url} says nothing of job x"):
        RayCluster(address).look("x")


def test_cluster_that_is_not_there_is_named_without_its_password(job_of, context_of):
    (port,) = free_ports(1)
    job = job_of("rows")
    job.ray_address = f"http://anna:s3cret@127.0.0.1:{port}"
    with pytest.raises(AirflowException, match=rf"Ray at http://\*\*\*@127.0.0.1:{port}") as caught:
        job.execute(context_of(run_id="away"))
    chain, error = [], caught.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "s3cret" not in "".join(chain)
