"""Both servers come up, run a job, and leave nothing behind when they are told to stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import requests

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
SLEEPY_JOB = """\
#!{python}
import os, pathlib, time
record = "{{}} {{}}".format(os.getpid(), os.environ["MLFLOW_TRACKING_URI"])
pathlib.Path({note!r}).write_text(record)
time.sleep(300)
"""


def eventually(probe, *, limit_s=120.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := probe():
            return value
        threading.Event().wait(0.2)
    raise AssertionError(f"nothing came in {limit_s} s")


@pytest.fixture
def note(tmp_path, monkeypatch):
    """Where the job leaves its process id and the tracking address it was given."""
    path = tmp_path / "note"
    python = tmp_path / "python"
    python.write_text(SLEEPY_JOB.format(python=sys.executable, note=str(path)))
    python.chmod(0o755)
    monkeypatch.setenv("NIGHTMILL_PYTHON", str(python))
    return path


@pytest.fixture
def up(tmp_path, note):
    command = [
        sys.executable,
        str(REPOSITORY / "infra" / "up.py"),
        "--home",
        str(tmp_path / "home"),
    ]
    ports = ["--mlflow-port", "5480", "--airflow-port", "8580"]
    output = tmp_path / "up.log"
    with output.open("w") as file:
        process = subprocess.Popen([*command, *ports], stdout=file, stderr=file, env=os.environ)
    try:
        yield process, output
    finally:
        process.terminate()
        process.wait(timeout=60)


def trigger(text):
    """Starts a retraining with what the welcome says: address, user and password."""
    airflow, user, password = re.search(
        r"Airflow\s+(\S+)\s+user (\w+), password (\S+)", text
    ).groups()
    session = requests.Session()
    session.trust_env = False
    login = {"username": user, "password": password}
    token = session.post(f"{airflow}/auth/token", json=login, timeout=30).json()["access_token"]
    session.headers["Authorization"] = f"Bearer {token}"
    runs = f"{airflow}/api/v2/dags/retrain/dagRuns"
    body = {"logical_date": None, "conf": {}}
    eventually(lambda: session.post(runs, json=body, timeout=30).status_code == 200)


def test_stopping_ends_servers_and_the_running_job(up, note):
    process, output = up
    eventually(lambda: "Ctrl-C stops everything" in output.read_text())
    trigger(output.read_text())
    eventually(lambda: note.exists() and note.read_text())
    job, tracking = note.read_text().split()
    mlflow = re.search(r"MLflow\s+(http\S+)", output.read_text())[1]
    assert tracking == mlflow
    family = psutil.Process(process.pid).children(recursive=True)
    assert int(job) in {member.pid for member in family}

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=60) == 0
    _, left = psutil.wait_procs(family, timeout=5)
    assert left == []
    assert output.read_text().splitlines()[-2:] == ["stopping", "stopped"]


def test_run_of_an_unknown_dag_is_a_usage_error(tmp_path):
    command = [sys.executable, str(REPOSITORY / "infra" / "run_dag.py")]
    runs = json.dumps([{"dag": "nightly_scoring_ticket"}])
    process = subprocess.run(
        [*command, "--home", str(tmp_path), "--runs", runs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "nightly_scoring_reviews, nightly_scoring_tickets, retrain" in process.stderr
