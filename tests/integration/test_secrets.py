"""Secrets stay in the environment: in no log line, error or trace, and in no file of the home."""

from __future__ import annotations

import json
import socket
import sys

import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException
from click.testing import CliRunner

from dags.operators.job import JobOperator
from dags.operators.runner import SubprocessRunner
from jobs.__main__ import app
from jobs.logs import configure_logging
from jobs.options import Context, run_job
from pipeline.engines.registry import Registry
from schemas.errors import BUG_EXIT_CODE, TransientError

pytestmark = pytest.mark.slow

PASSWORD = "correct/horse@battery"  # noqa: S105
ENCODED = "correct%2Fhorse%40battery"
DAY = "2026-11-28"
LEAKY_JOB = """\
#!{python}
import os, sys
print("connecting to s3://KEY:" + os.environ["AWS_SECRET_ACCESS_KEY"] + "@bucket", flush=True)
print("12:00:00 ERROR   ConfigError: refused " + os.environ["MLFLOW_TRACKING_PASSWORD"], flush=True)
sys.exit(2)
"""


@pytest.fixture
def secrets(monkeypatch):
    """Secrets of every kind that production has in its environment; answers their values."""
    values = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIbPxRfiCY",
        "AWS_SESSION_TOKEN": "session-token-of-an-hour",
        "MLFLOW_TRACKING_PASSWORD": "of-the-service-account",
        "PGPASSWORD": "of-the-database-server",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", f"postgresql://ann:{ENCODED}@warehouse/x")
    return [*values.values(), PASSWORD, ENCODED]


@pytest.fixture
def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Listening(SubprocessRunner):
    """Keeps the lines that would go to Airflow's task log."""

    def run(self, command, *, environment, on_line):
        self.lines = []
        return super().run(command, environment=environment, on_line=self.lines.append)


def leaks(text, secrets):
    return [secret for secret in secrets if secret in text]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("scheme", ["postgresql+psycopg2", "http"])
def test_a_job_that_cannot_reach_its_tracking_store_hides_the_password(
    home, secrets, closed_port, monkeypatch, scheme, style
):
    if scheme.startswith("postgresql"):
        pytest.importorskip("psycopg2", reason="the extra `production` is not installed")
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", style)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    address = f"{scheme}://ann:{ENCODED}@127.0.0.1:{closed_port}/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    result = CliRunner().invoke(app, ["promote", "tickets", "--home", str(home.root)])

    assert result.exit_code == TransientError.exit_code
    assert f"{scheme}://ann:***@127.0.0.1:{closed_port}" in result.stderr
    assert leaks(result.output + result.stderr, secrets) == []


def test_the_trace_of_a_bug_hides_secrets(home, secrets, monkeypatch, capsys):
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", "json")

    def broken(context):
        raise RuntimeError(f"refused {PASSWORD} at s3://KEY:{secrets[0]}@bucket")

    configure_logging("broken")
    assert run_job(broken, Context(home)) == BUG_EXIT_CODE
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert "RuntimeError: refused *** at s3://KEY:***@bucket" in line["trace"]
    assert leaks(json.dumps(line), secrets) == []


def test_what_a_library_prints_past_the_log_is_masked_by_the_operator(
    home, secrets, tmp_path, monkeypatch
):
    monkeypatch.setenv("NIGHTMILL_HOME", str(home.root))
    python = tmp_path / "python"
    python.write_text(LEAKY_JOB.format(python=sys.executable))
    python.chmod(0o755)
    listening = Listening()
    operator = JobOperator(
        task_id="score",
        job="score",
        arguments=["tickets"],
        python=str(python),
        runner=listening,
    )

    with pytest.raises(AirflowFailException, match=r"ConfigError: refused \*\*\*") as caught:
        operator.execute({})

    assert listening.lines[0] == "connecting to s3://KEY:***@bucket"
    assert leaks("".join(listening.lines) + str(caught.value), secrets) == []


def test_no_file_of_a_scored_night_holds_a_secret(
    home, secrets, tiny_task, tiny_bundle, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home.root / 'mlflow.db'}")
    raw = tiny_task.model_dump(mode="json")
    raw["score"] |= {"model": "models:/tiny@challenger", "workers": 1}
    raw["score"]["sinks"] = [{"location": str(home.root / "copies")}]
    home.tasks.mkdir()
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    rows = [{"ticket_id": str(n), "subject": "invoice", "body": f"late {n}"} for n in range(20)]
    night = home.root / f"incoming/tiny/date={DAY}/rows.jsonl"
    night.parent.mkdir(parents=True)
    night.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    registry = Registry(home)
    run_id = registry.start_run("tiny", "r1", params=raw)
    registry.register("tiny", tiny_bundle, run_id=run_id)

    arguments = ["tiny", "--date", DAY, "--home", str(home.root)]
    printed = ""
    for job in ("validate", "score"):
        result = CliRunner().invoke(app, [job, *arguments])
        assert result.exit_code == 0, result.stderr
        printed += result.output + result.stderr

    files = [path for path in home.root.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"manifest.json", "bundle.json", "MLmodel", "index.html", "mlflow.db"} <= names
    holders = {path for path in files for word in secrets if word.encode() in path.read_bytes()}
    assert holders == set()
    assert leaks(printed, secrets) == []
