from __future__ import annotations

import json
import logging
from contextlib import contextmanager

import pytest

from jobs.logs import JsonFormatter, bound, configure_logging, configure_worker_logging

AIRFLOW = {
    "AIRFLOW_CTX_DAG_ID": "nightmill_tiny",
    "AIRFLOW_CTX_TASK_ID": "score",
    "AIRFLOW_CTX_DAG_RUN_ID": "manual__1",
    "AIRFLOW_CTX_TRY_NUMBER": "2",
}
MADE_BY_ITSELF = {"time", "level", "job", "logger", "message"}


@pytest.fixture(autouse=True)
def _not_from_airflow(monkeypatch):
    for name in AIRFLOW:
        monkeypatch.delenv(name, raising=False)


@contextmanager
def logging_untouched():
    """A process whose logging nobody has set up yet; afterwards it is as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)


def line():
    record = logging.LogRecord("jobs.score", logging.INFO, __file__, 1, "done %d", (3,), None)
    return json.loads(JsonFormatter("score").format(record))


def fields():
    return {name: value for name, value in line().items() if name not in MADE_BY_ITSELF}


def test_a_line_carries_what_is_bound_around_it_and_no_longer():
    assert fields() == {}
    with bound(task="tiny", date="2026-11-28", run=None):
        with bound(shard=7, date="2026-11-29"):
            assert fields() == {"task": "tiny", "date": "2026-11-29", "shard": "7"}
        assert fields() == {"task": "tiny", "date": "2026-11-28"}
    assert fields() == {}
    assert line()["message"] == "done 3"


def test_a_line_names_the_airflow_task_that_started_the_job(monkeypatch):
    for name, value in AIRFLOW.items():
        monkeypatch.setenv(name, value)
    assert fields() == {
        "dag": "nightmill_tiny", "dag_task": "score", "dag_run": "manual__1", "try": "2",
    }  # fmt: skip


def test_a_worker_sets_up_logging_only_where_nobody_has(monkeypatch, capsys):
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", "json")
    with logging_untouched() as root:
        configure_worker_logging("score")
        mine = root.handlers[:]
        configure_worker_logging("other")
        assert root.handlers == mine
        with bound(shard=3):
            logging.getLogger("jobs.scoring").warning("once more")
    told = json.loads(capsys.readouterr().err)
    assert (told["job"], told["shard"], told["message"]) == ("score", "3", "once more")


def test_text_for_people_is_without_the_fields(monkeypatch, capsys):
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", "text")
    with logging_untouched(), bound(task="tiny"):
        configure_logging("score")
        logging.getLogger("jobs.score").info("published")
    assert capsys.readouterr().err.endswith("INFO    published\n")


def test_the_error_that_ends_a_job_says_whose_it_is(home, nightmill, monkeypatch):
    monkeypatch.setenv("NIGHTMILL_LOG_FORMAT", "json")
    done = nightmill("score", "nobody", "--date", "2026-11-28", home=home)
    assert done.exit_code == 2
    told = json.loads(done.stderr.splitlines()[-1])
    assert (told["level"], told["task"], told["date"]) == ("error", "nobody", "2026-11-28")
