from __future__ import annotations

import json

import pytest
from airflow.exceptions import AirflowNotFoundException

from dags.operators.credentials import connection_environment
from dags.operators.job import JobOperator
from dags.operators.runner import Outcome

MLFLOW = {"conn_type": "http", "host": "mlflow.example", "port": 8443, "schema": "https"}
S3 = {
    "conn_type": "aws",
    "login": "AKIAEXAMPLE",
    "password": "wJalrXUtnFEMI",
    "extra": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
}


@pytest.fixture
def connections(monkeypatch):
    """Defines connections, and names the ones that jobs get."""

    def define(**named):
        for service, content in named.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_OF_{service.upper()}", json.dumps(content))
            monkeypatch.setenv(f"NIGHTMILL_{service.upper()}_CONNECTION", f"of_{service}")

    return define


def test_without_a_named_connection_nothing_is_asked_for(monkeypatch):
    for service in ("MLFLOW", "S3"):
        monkeypatch.delenv(f"NIGHTMILL_{service}_CONNECTION", raising=False)
    assert connection_environment() == {}


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        (
            {"login": "nightmill", "password": "of-the-account"},
            {
                "MLFLOW_TRACKING_USERNAME": "nightmill",
                "MLFLOW_TRACKING_PASSWORD": "of-the-account",
            },
        ),
        ({"password": "only-a-token"}, {"MLFLOW_TRACKING_TOKEN": "only-a-token"}),
        ({}, {}),
    ],
)
def test_a_connection_to_mlflow(connections, login, expected):
    connections(mlflow=MLFLOW | login)
    address = {"MLFLOW_TRACKING_URI": "https://mlflow.example:8443"}
    assert connection_environment() == address | expected


def test_a_connection_to_s3(connections):
    connections(s3=S3)
    assert connection_environment() == {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://minio:9000",
    }


def test_a_connection_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("NIGHTMILL_S3_CONNECTION", "of_nobody")
    with pytest.raises(AirflowNotFoundException, match="of_nobody"):
        connection_environment()


def test_a_job_gets_them_over_what_its_environment_holds(home, connections, monkeypatch):
    class Spy:
        def run(self, command, *, environment, on_line):
            self.environment = environment
            with open(command[-1], "w") as file:
                file.write("{}")
            return Outcome(0, "")

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-somebody-else")
    connections(s3=S3)
    spy = Spy()
    JobOperator(task_id="score", job="score", arguments=["tickets"], runner=spy).execute({})
    assert spy.environment.get("AWS_SECRET_ACCESS_KEY") == S3["password"]
