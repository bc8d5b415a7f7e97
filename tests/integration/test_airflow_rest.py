"""A real Airflow over REST: a night is scored once, whatever happens to its task or scheduler.

Workers note each record they begin and stop at a gate in the middle of the night, so that a task
is cleared, and a scheduler killed, at a moment that is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests
import yaml

from schemas.home import Home

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(2400)]

REPOSITORY = Path(__file__).resolve().parents[2]
DAG = "nightly_scoring_tiny"
ROWS, ROWS_PER_SHARD, EMPTY = 40, 4, 7
SHARDS = ROWS // ROWS_PER_SHARD
BEFORE_THE_GATE = 13  # records of each worker: three shards and a part of the next
# Long enough for a machine on which several suites run; each wait is over as soon as it may be.
START_LIMIT_S, LIMIT_S, HTTP_LIMIT_S, STOP_LIMIT_S = 700, 900, 600, 90
GATED = Path(__file__).parent / "gated"  # its docstring tells what it does


def eventually(probe, *, limit_s=LIMIT_S, said=lambda: ""):
    """The first true value of `probe`; `said` tells what there is to see where none comes."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := probe():
            return value
        threading.Event().wait(0.3)
    raise AssertionError(f"nothing came in {limit_s} s: {said()}")


def is_gone(process):
    """Whether a process has ended; what nobody has waited for yet is still listed."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass(frozen=True)
class Airflow:
    """A running `make up` with Airflow's API, and what workers and jobs leave in its home."""

    process: subprocess.Popen[bytes]
    home: Home
    gate: Path
    api: str
    session: requests.Session

    def ask(self, method, path, **body):
        answer = self.session.request(
            method, f"{self.api}/{path}", json=body or None, timeout=HTTP_LIMIT_S
        )
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def start_night(self, date):
        """Triggers a night's run; its id."""
        body = {"logical_date": None, "conf": {"date": date}}
        return self.ask("POST", f"dags/{DAG}/dagRuns", **body)["dag_run_id"]

    def states(self, run):
        tasks = self.ask("GET", f"dags/{DAG}/dagRuns/{run}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def clear(self, run, task):
        """What a person does with *Clear*: the task runs again, also if it is running now."""
        body = {"dag_run_id": run, "task_ids": [task], "only_failed": False, "dry_run": False}
        self.ask("POST", f"dags/{DAG}/clearTaskInstances", **body)

    def begun(self):
        """Which process has begun which record, in order."""
        path = self.gate / "begun.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def scoring(self):
        """The processes of `nightmill score` that live now, whoever started them."""
        wanted = {"jobs", "score", "tiny", str(self.home.root)}
        found = {
            process.pid: process
            for process in psutil.process_iter(["cmdline", "ppid"])
            if wanted <= set(process.info["cmdline"] or ()) and not is_gone(process)
        }
        # A job's own forks have its command line.
        return [process for process in found.values() if process.info["ppid"] not in found]

    def shards_done(self, date):
        return list((self.home.staging("tiny") / f"date={date}").rglob("shards/*.json"))

    def wait_for_success(self, run):
        """Returns when the run has ended well; a retry that waits a minute is sent off at once."""

        def probe():
            states = self.states(run)
            assert "failed" not in states.values(), (states, self.log(run, "score"))
            if states.get("score") == "up_for_retry":
                self.clear(run, "score")
            return self.ask("GET", f"dags/{DAG}/dagRuns/{run}")["state"] == "success"

        eventually(probe, said=lambda: str(self.states(run)))

    def log(self, run, task):
        path = f"{self.api}/dags/{DAG}/dagRuns/{run}/taskInstances/{task}/logs/1?full_content=true"
        return self.session.get(path, timeout=HTTP_LIMIT_S).text[-3000:]


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """A folder in which workers note what they begin, and look for leave to go on."""
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_task, tiny_bundle):
    """A home whose task `tiny` has a registered champion."""
    from pipeline.engines.registry import Registry

    home = Home(tmp_path_factory.mktemp("rest") / "home")
    raw = tiny_task.model_dump(mode="json")
    raw["score"] |= {"workers": 2, "rows_per_shard": ROWS_PER_SHARD}
    raw["schedule"] = None  # or its last night would begin at once
    home.tasks.mkdir(parents=True)
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        registry = Registry(home)
        run = registry.start_run("tiny", "r1", params={})
        registry.register("tiny", tiny_bundle, run_id=run)
        registry.promote("tiny", "1", approver="ann", reason="first")
    return home


@pytest.fixture(scope="module")
def airflow(home, gate):
    """Airflow and MLflow as `make up` starts them, on free ports; all of it ends with the tests."""
    output = home.root.parent / "up.log"
    with output.open("w") as file:
        process = subprocess.Popen(up_command(home), stdout=file, stderr=file, env=clean_env(gate))
    try:
        address, password = welcome(process, output)
        session = requests.Session()
        session.trust_env = False
        airflow = Airflow(process, home, gate, f"{address}/api/v2", session)
        login = {"username": "admin", "password": password}
        token = session.post(f"{address}/auth/token", json=login, timeout=HTTP_LIMIT_S).json()
        session.headers["Authorization"] = f"Bearer {token['access_token']}"
        # The file is parsed a few seconds after the servers are up.
        path = f"{airflow.api}/dags/{DAG}"
        body = {"is_paused": False}
        eventually(lambda: session.patch(path, json=body, timeout=HTTP_LIMIT_S).ok)
        yield airflow
    finally:
        process.terminate()
        process.wait(timeout=STOP_LIMIT_S)


def up_command(home):
    ports = {"--mlflow-port": free_port(), "--airflow-port": free_port()}
    command = [sys.executable, str(REPOSITORY / "infra" / "up.py"), "--home", str(home.root)]
    return command + [str(word) for option in ports.items() for word in option]


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_env(gate):
    """This process's, without what would lead to servers or jobs of somebody else's."""
    foreign = ("NIGHTMILL_", "MLFLOW_", "AIRFLOW_", "RAY_ADDRESS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    paths = [str(GATED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "GATE_FOLDER": str(gate),
        "GATE_AFTER": str(BEFORE_THE_GATE),
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # A server that other work keeps from answering for some seconds is no reason to give up.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "600",
        "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "20",
    }


def welcome(process, output):
    """Airflow's address and the admin's password, once they are printed."""

    def told():
        text = output.read_text()
        assert process.poll() is None, f"the servers ended: {text}"
        return re.search(r"Airflow\s+(http\S+)\W+user admin\W+password (\S+)", text)

    return eventually(told, limit_s=START_LIMIT_S, said=output.read_text).groups()


def write_night(home, date):
    """A night of rows whose ids tell night and row; one of them has no text."""
    night, path = date[-2:], home.root / f"incoming/tiny/date={date}/rows.jsonl"
    path.parent.mkdir(parents=True)
    rows = [
        {"ticket_id": f"{night}-{number}", "subject": "late parcel", "body": f"refund {number}"}
        for number in range(ROWS)
    ]
    rows[EMPTY] |= {"subject": None, "body": " "}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def wait_for_the_middle(airflow, run, date):
    """Returns when a worker stands at the gate: ids of the records in shards that are done."""

    def standing():
        counts = Counter(pid for pid, record in airflow.begun() if record.startswith(date[-2:]))
        states = airflow.states(run)
        assert "failed" not in states.values(), (states, airflow.log(run, "score"))
        return counts and max(counts.values()) > BEFORE_THE_GATE

    eventually(standing, said=lambda: f"{airflow.states(run)}, begun: {airflow.begun()}")
    done = [json.loads(path.read_text())["shard"]["index"] for path in airflow.shards_done(date)]
    return [
        f"{date[-2:]}-{number}"
        for shard in done
        for number in range(shard * ROWS_PER_SHARD, (shard + 1) * ROWS_PER_SHARD)
        if number != EMPTY
    ]


def attempt_of(airflow, date):
    """The job that scores this night now, and its workers at the gate."""
    [job] = airflow.scoring()
    workers = {pid for pid, record in airflow.begun() if record.startswith(date[-2:])}
    return [job, *map(psutil.Process, workers)]


def end_and_go_on(airflow, run, date, first):
    """Waits until the first attempt is gone, and lets its successor through the gate."""

    def left():
        return [process for process in first if not is_gone(process)]

    eventually(lambda: not left(), said=lambda: f"{left()} live: {airflow.states(run)}")
    (airflow.gate / f"open-{date[-2:]}").touch()
    airflow.wait_for_success(run)


def check_scored_once(airflow, date, done_before):
    """One publication with each row in it once, and no finished shard was begun again."""
    folder = airflow.home.scores("tiny") / f"date={date}"
    lines = [json.loads(line) for line in (folder / "publications.jsonl").read_text().splitlines()]
    assert len(lines) == 1
    assert lines[0]["shards_kept"] >= len(done_before) // ROWS_PER_SHARD
    assert lines[0]["shards_kept"] + lines[0]["shards_scored"] == SHARDS
    manifest = json.loads((folder / "manifest.json").read_text())
    counters = manifest["counters"]
    assert counters["rows_read"] == ROWS
    assert (counters["rows_scored"], counters["rows_quarantined"]) == (ROWS - 1, 1)
    assert manifest["model"]["version"] == "1"
    assert [path.name for path in folder.glob("run=*")] == [f"run={manifest['run']}"]
    times = Counter(record for _, record in airflow.begun())
    assert {times[record] for record in done_before} == {1}
    night = [record for record in times if record.startswith(date[-2:])]
    assert len(night) == ROWS - 1
    assert airflow.scoring() == []


def test_failure_13_a_cleared_task_ends_its_job_and_goes_on_where_that_was(airflow):
    date = "2026-11-28"
    write_night(airflow.home, date)
    run = airflow.start_night(date)
    done = wait_for_the_middle(airflow, run, date)
    assert len(done) >= 2 * ROWS_PER_SHARD
    first = attempt_of(airflow, date)

    airflow.clear(run, "score")
    end_and_go_on(airflow, run, date, first)

    check_scored_once(airflow, date, done)


def test_failure_12_a_killed_scheduler_lets_no_second_job_run_beside_the_first(airflow):
    date = "2026-11-29"
    write_night(airflow.home, date)
    run = airflow.start_night(date)
    done = wait_for_the_middle(airflow, run, date)
    first = attempt_of(airflow, date)

    with scheduler_killed_and_started_again(airflow):
        end_and_go_on(airflow, run, date, first)

    check_scored_once(airflow, date, done)


@contextlib.contextmanager
def scheduler_killed_and_started_again(airflow):
    """kill -9, and the same command again; what either of them leaves is ended afterwards."""
    scheduler = scheduler_of(airflow.process.pid)
    command, environment = scheduler.cmdline(), scheduler.environ()
    orphans = scheduler.children(recursive=True)
    scheduler.kill()
    eventually(lambda: is_gone(scheduler))
    let_time_pass(airflow.home)
    log = airflow.home.root.parent / "scheduler.log"
    with log.open("w") as file:
        successor = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield
    finally:
        family = [*orphans, *psutil.Process(successor.pid).children(recursive=True)]
        successor.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            successor.wait(20)
        for process in [*family, successor]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        successor.wait(STOP_LIMIT_S)


def scheduler_of(pid):
    """The scheduler among the processes below `make up`: standalone's own child."""
    [scheduler] = [
        process
        for standalone in psutil.Process(pid).children(recursive=True)
        if standalone.cmdline()[-1:] == ["standalone"]
        for process in standalone.children()
        if process.cmdline()[-1:] == ["scheduler"]
    ]
    return scheduler


def let_time_pass(home):
    """As though the dead scheduler had been away for long: Airflow counts 30 s of silence."""
    silent = "UPDATE job SET latest_heartbeat = '2026-01-01 00:00:00.000000' WHERE "
    path = home.root / "airflow" / "airflow.db"
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as database, database:
        changed = database.execute(f"{silent} job_type = 'SchedulerJob' AND state = 'running'")
        assert changed.rowcount == 1
