"""Airflow and MLflow on PostgreSQL, with logins and roles, as `make up` starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import requests

from pipeline.bundle import load_spec
from pipeline.engines.registry import Registry
from schemas.errors import ConfigError
from schemas.home import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).resolve().parents[2]
USERS = {"vera": "viewer", "uma": "user", "otto": "op"}


def eventually(probe, *, limit_s=600.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := probe():
            return value
        threading.Event().wait(0.3)
    raise AssertionError(f"nothing came in {limit_s} s")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Stand:
    """Both servers, as `make up` has brought them up."""

    home: Path
    airflow: str
    mlflow: str
    output: Path
    pid: int

    @property
    def passwords(self):
        (path,) = (self.home / "airflow").glob("simple_auth_manager_passwords*")
        return json.loads(path.read_text())

    @property
    def service_password(self):
        return json.loads((self.home / "mlflow" / "secrets.json").read_text())["nightmill"]

    def airflow_session(self, name):
        login = {"username": name, "password": self.passwords[name]}
        session = requests.Session()
        session.trust_env = False
        answer = session.post(f"{self.airflow}/auth/token", json=login, timeout=60)
        session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return session


@pytest.fixture(scope="module")
def stand(postgres, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand")
    output = folder / "up.log"
    command = [sys.executable, str(REPOSITORY / "infra" / "up.py"), "--home", str(folder / "home")]
    command += ["--mlflow-port", str(free_port()), "--airflow-port", str(free_port())]
    people = ",".join(f"{name}:{role}" for name, role in USERS.items())
    environment = {**os.environ, "NIGHTMILL_DATABASE": postgres.address, "NIGHTMILL_USERS": people}
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        eventually(lambda: process.poll() is not None or "Ctrl-C" in output.read_text())
        text = output.read_text()
        assert process.poll() is None, text
        addresses = [re.search(rf"{name}\s+(http\S+)", text)[1] for name in ("Airflow", "MLflow")]
        yield Stand(folder / "home", *addresses, output, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)


@pytest.fixture
def as_account(stand, monkeypatch):
    """Makes this process one of MLflow's accounts."""

    def become(name):
        password = stand.service_password if name == "nightmill" else stand.passwords[name]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", stand.mlflow)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)

    return become


def test_metadata_of_both_lie_in_postgres(stand, postgres):
    owned = "SELECT count(*) FROM pg_tables WHERE tableowner = 'nightmill' AND tablename = "
    tables = {"airflow": "dag_run", "mlflow": "registered_models", "mlflow_accounts": "users"}
    for database, table in tables.items():
        assert postgres.sql(f"{owned}'{table}'", database) == "1", database
    assert list(stand.home.rglob("*.db")) == []


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("vera", {"read": 200, "pause": 403, "trigger": 403, "connect": 403}),
        ("uma", {"read": 200, "pause": 200, "trigger": 200, "connect": 403}),
        ("otto", {"read": 200, "pause": 200, "trigger": 200, "connect": 201}),
    ],
)
def test_a_role_of_airflow_allows_what_it_is_for(stand, name, answers):
    session = stand.airflow_session(name)
    dag = f"{stand.airflow}/api/v2/dags/retrain"
    eventually(lambda: session.get(dag, timeout=60).status_code == 200)
    # Paused, the run stays queued: what it would do is not the question here.
    run = {"logical_date": None, "conf": {}}
    connection = {"connection_id": f"of_{name}", "conn_type": "http", "password": "hidden-word"}
    sent = {
        "read": session.get(f"{dag}/dagRuns", timeout=60),
        "pause": session.patch(dag, json={"is_paused": True}, timeout=60),
        "trigger": session.post(f"{dag}/dagRuns", json=run, timeout=60),
        "connect": session.post(f"{stand.airflow}/api/v2/connections", json=connection, timeout=60),
    }
    assert {what: answer.status_code for what, answer in sent.items()} == answers
    assert not [answer for answer in sent.values() if "hidden-word" in answer.text]


def test_only_the_service_account_changes_models(stand, as_account, tiny_bundle, tmp_path):
    as_account("nightmill")
    registry = Registry(Home(tmp_path / "worker"))
    run_id = registry.start_run("tiny", "r1", params={"epochs": 1})
    version = registry.register("tiny", tiny_bundle, run_id=run_id)
    assert list((stand.home / "mlartifacts").rglob("bundle.json"))  # behind the server
    as_account("otto")
    reader = Registry(Home(tmp_path / "reader"))
    refusal = r"refuses these credentials.*MLFLOW_TRACKING_USERNAME"
    with pytest.raises(ConfigError, match=refusal):
        reader.promote("tiny", version, approver="otto", reason="mine")

    as_account("nightmill")
    registry.promote("tiny", version, approver="uma", reason="first")
    as_account("otto")
    model, bundle = reader.fetch("models:/tiny@champion")
    assert (model.version, load_spec(bundle).digest) == (version, load_spec(tiny_bundle).digest)
    alias = {"name": "tiny", "alias": "champion", "version": version}
    answer = requests.post(
        f"{stand.mlflow}/api/2.0/mlflow/registered-models/alias",
        json=alias,
        auth=("otto", stand.passwords["otto"]),
        timeout=60,
    )
    assert answer.status_code == 403


def test_mlflow_shows_nothing_without_an_account(stand):
    address = f"{stand.mlflow}/api/2.0/mlflow/registered-models/search"
    assert requests.get(address, timeout=60).status_code == 401
    assert requests.get(address, auth=("otto", "guessed-password"), timeout=60).status_code == 401


def test_first_users_of_a_fresh_server_share_one_experiment(as_account, postgres, tmp_path):
    as_account("nightmill")
    with ThreadPoolExecutor(4) as pool:
        runs = list(
            pool.map(
                lambda n: Registry(Home(tmp_path / str(n))).start_run("fresh", f"r{n}", params={}),
                range(4),
            )
        )
    assert len(set(runs)) == 4
    query = "SELECT count(*) FROM experiments WHERE name = 'nightmill-fresh'"
    assert postgres.sql(query, "mlflow") == "1"


def test_passwords_are_in_no_log_settings_or_command_line(stand, postgres):
    secrets = [postgres.password, quote(postgres.password, safe=""), stand.service_password]
    people = list(stand.passwords.values())
    own = {"secrets.json", *(path.name for path in stand.home.glob("airflow/simple_auth*"))}
    told = {
        path: path.read_text(errors="replace")
        for path in stand.home.rglob("*")
        if path.is_file() and path.name not in own
    }
    family = psutil.Process(stand.pid).children(recursive=True)
    told |= {member: " ".join(member.cmdline()) for member in family if member.is_running()}
    assert len(family) > 5
    assert len(told) > len(family) + 3
    found = {where for where, text in told.items() for word in secrets + people if word in text}
    assert found == set()
    # The greeting tells the people's own passwords, and nothing of the database.
    greeting = stand.output.read_text()
    assert not [word for word in secrets if word in greeting]
    for path in (stand.home / "mlflow" / "secrets.json", *stand.home.glob("airflow/simple_auth*")):
        assert path.stat().st_mode & 0o077 == 0, path
