"""A person answers an approval through Airflow's own API, and only `Approve` promotes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests

# Quiet machines need half a minute; the limits are for busy ones.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).resolve().parents[2]
EVIDENCE = {
    "new": {
        "training_run": "r",
        "backbone": "hf:small",
        "variant": "int8_static",
        "digest": "d" * 64,
        "data_digest": "d" * 64,
        "weights_digest": "e" * 64,
    },
    "heads": [
        {
            "head": "queue",
            "rows": 500,
            "accuracy": 0.93,
            "accuracy_interval": [0.91, 0.95],
            "macro_f1": 0.91234567,
            "macro_f1_interval": [0.89, 0.93],
            "majority_accuracy": 0.2,
            "calibration_error": 0.0312,
        }
    ],
}
RESULTS = {
    "finetune": {"run": "r", "metrics": {}},
    "bundle": {"run": "r", "digest": "d" * 64, "variant": "int8_static", "evidence": EVIDENCE},
    "register": {"name": "tickets", "version": "3", "run_id": "x", "champion": None},
    "promote": {"name": "tickets", "version": "3", "previous": "2"},
    "models": {"name": "tickets", "version": "3"},
}
FAKE = """\
#!{python}
import json, pathlib, sys
arguments = sys.argv[3:]
with pathlib.Path({calls!r}).open("a") as file:
    file.write(json.dumps(arguments) + chr(10))
result = pathlib.Path(arguments[arguments.index("--result") + 1])
result.write_text(json.dumps({results!r}[arguments[0]]))
"""


def load(path):
    spec = importlib.util.spec_from_file_location(f"nightmill_infra_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


settings = load(REPOSITORY / "infra" / "airflow" / "settings.py")
processes = load(REPOSITORY / "infra" / "processes.py")


def eventually(probe, *, limit_s=240.0):
    """The first true value of `probe`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := probe():
            return value
        threading.Event().wait(0.2)
    raise AssertionError(f"nothing came in {limit_s} s")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("approval")
    python = folder / "python"
    calls = str(folder / "calls.jsonl")
    python.write_text(FAKE.format(python=sys.executable, calls=calls, results=RESULTS))
    python.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def environment(place):
    ours = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "NIGHTMILL_PYTHON": str(place / "python"),
        "PATH": f"{ours}{os.pathsep}{os.environ['PATH']}",
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture(scope="module")
def api(place, environment):
    """Address and headers of an API server on the database that the runs use."""
    home = place / "home"
    port = processes.free_port(8480, host="127.0.0.1")
    own = settings.airflow_environment(home, repository=REPOSITORY)
    own |= settings.server_environment(port=port, worker_log_port=8793, trigger_log_port=8794)
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**environment, **own},
        check=True,
        capture_output=True,
    )
    server = processes.start(
        "api",
        [sys.executable, "-m", "airflow", "api-server"],
        environment={**environment, **own},
        health=f"http://127.0.0.1:{port}/api/v2/monitor/health",
        log=place / "api.log",
    )
    try:
        processes.wait_until_ready(
            [server], timeout_s=240, is_ready=lambda server: processes.answer_of(server.health)
        )
        yield login(home, f"http://127.0.0.1:{port}")
    finally:
        processes.stop([server], grace_s=10)


def login(home, address):
    passwords = json.loads((home / "airflow" / settings.PASSWORD_FILE).read_text())
    session = requests.Session()
    session.trust_env = False
    answer = session.post(
        f"{address}/auth/token",
        json={"username": settings.USER, "password": passwords[settings.USER]},
        timeout=30,
    )
    session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    return session, f"{address}/api/v2/dags/retrain/dagRuns"


def start_run(place, environment):
    command = [sys.executable, str(REPOSITORY / "infra" / "run_dag.py"), "--home"]
    conf = json.dumps({"task": "tickets", "reason": "drift in channel", "approval_hours": 5})
    return subprocess.Popen(
        [*command, str(place / "home"), "retrain", "--conf", conf],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def waiting_run(session, runs, process):
    """Id of the run whose approval waits for a person."""

    def probe():
        if process.poll() is not None:
            raise AssertionError(
                f"the run ended before anybody was asked:\n{process.stdout.read()}"
            )
        for run in session.get(runs, timeout=30).json().get("dag_runs", ()):
            task = f"{runs}/{run['dag_run_id']}/taskInstances/approve"
            if session.get(task, timeout=30).json().get("state") == "awaiting_input":
                return run["dag_run_id"]
        return None

    return eventually(probe)


def answer_run(api, place, environment, option):
    session, runs = api
    with start_run(place, environment) as process:
        try:
            run_id = waiting_run(session, runs, process)
            details = f"{runs}/{run_id}/taskInstances/approve/-1/hitlDetails"
            shown = session.get(details, timeout=30).json()
            response = session.patch(
                details,
                json={"chosen_options": [option], "params_input": {"reason": "numbers are good"}},
                timeout=30,
            )
            assert response.status_code == 200, response.text
            output, _ = process.communicate(timeout=180)
        finally:
            process.kill()
    states = dict(line.split()[:2] for line in output.splitlines() if line.startswith("  "))
    return shown, states, process.returncode


def calls(place):
    path = place / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_approval_promotes_in_the_name_of_the_person(api, place, environment):
    shown, states, code = answer_run(api, place, environment, "Approve")

    assert shown["subject"] == "Promote tickets version 3 to champion?"
    assert "| queue | 500 | 0.912 (0.890 to 0.930)" in shown["body"]
    assert "the task has no champion yet" in shown["body"]
    assert "Why it was made: drift in channel" in shown["body"]
    assert "No answer within 5 h is a rejection by nobody." in shown["body"]
    assert shown["params"]["reason"]["value"] == ""  # and not why the run was started
    assert (code, states["promote"], states["reject"]) == (0, "success", "skipped")
    promotion = ["promote", "tickets", "--version", "3", "--approver", "admin"]
    assert calls(place)[-1][:8] == [*promotion, "--reason", "numbers are good"]


def test_rejection_is_recorded_in_the_name_of_the_person_and_promotes_nothing(
    api, place, environment
):
    before = sum(call[0] == "promote" for call in calls(place))

    _, states, code = answer_run(api, place, environment, "Reject")

    assert states["approve"] == states["decide"] == states["reject"] == "success"
    assert states["promote"] == "skipped"
    assert code == 0
    rejection = ["models", "reject", "tickets", "--version", "3", "--approver", "admin"]
    assert calls(place)[-1][:9] == [*rejection, "--reason", "numbers are good"]
    assert sum(call[0] == "promote" for call in calls(place)) == before
