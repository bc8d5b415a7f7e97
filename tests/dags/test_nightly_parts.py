"""Waiting for input, events of published scores, notices: each part without a running Airflow."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from airflow.sdk.execution_time.callback_supervisor import execute_callback
from airflow.serialization.serialized_objects import DagSerialization

from dags.nightly.arrival import InputSensor
from dags.nightly.notices import failure_message, notify, tell_failure
from dags.nightly.publication import event_extra, scores_asset
from dags.nightly.soft import SoftJobOperator
from dags.operators.job import JobOperator
from dags.operators.runner import Outcome
from schemas.errors import ArtifactError
from schemas.schedule import LateConfig

DAGS = Path(__file__).resolve().parents[2] / "dags"
SECRET = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name
ARGUMENTS = ["tickets", "--date", "2026-11-28", "--through", "2026-11-28"]


class FakeRunner:
    """Answers `nightmill arrived` with one outcome after another, the last one for ever."""

    def __init__(self, *answers):
        self.answers, self.commands = list(answers), []
        self.environment, self.says = {}, ""

    def run(self, command, *, environment, on_line):
        self.commands.append(list(command))
        self.environment = dict(environment)
        on_line(self.says)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Outcome):
            return answer
        Path(command[-1]).write_text(json.dumps({"missing": answer, "location": "in/*.csv"}))
        return Outcome(0, "")

    def stop(self):
        self.commands.append(["stop"])


def sensor(runner, *, then="fail", waited_minutes=0.0, wait_minutes=30.0):
    """A sensor whose task has been at it for some minutes, and its context."""
    late = LateConfig(wait_minutes=wait_minutes, poll_minutes=2, then=then)
    task = InputSensor(task_id="wait", arguments=ARGUMENTS, late=late, runner=runner)
    began = datetime.now(UTC) - timedelta(minutes=waited_minutes)
    instance = SimpleNamespace(get_first_reschedule_date=lambda context: began)
    return task, {"ti": instance}


def test_input_that_is_there_lets_the_night_go_on(home):
    runner = FakeRunner([])
    task, context = sensor(runner)
    assert task.execute(context) == {"missing": [], "location": "in/*.csv"}
    (command,) = runner.commands
    assert command[1:-1] == [
        "-m", "jobs", "arrived", *ARGUMENTS, "--home", str(home), "--result",
    ]  # fmt: skip


def test_input_that_is_not_there_is_looked_for_again_without_a_worker(home):
    task, context = sensor(FakeRunner(["2026-11-28"]), waited_minutes=10)
    before = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as caught:
        task.execute(context)
    assert task.reschedule is True
    assert timedelta(minutes=1.9) < caught.value.reschedule_date - before < timedelta(minutes=2.5)


@pytest.mark.parametrize(
    ("then", "error"), [("fail", AirflowFailException), ("skip", AirflowSkipException)]
)
def test_waiting_in_vain_ends_by_the_policy(home, then, error):
    task, context = sensor(FakeRunner(["2026-11-28"]), then=then, waited_minutes=31)
    message = r"no input for 2026-11-28 after 30 minutes: nothing matches in/\*.csv"
    with pytest.raises(error, match=message):
        task.execute(context)


def test_waiting_in_vain_may_go_on_with_what_is_there(home):
    runner = FakeRunner(["2026-11-28"])
    task, context = sensor(runner, then="score_what_is_there", waited_minutes=31)
    assert task.execute(context)["missing"] == ["2026-11-28"]


def test_storage_that_is_away_is_waited_for_and_a_wrong_setting_is_not(home):
    task, context = sensor(FakeRunner(Outcome(75, "TransientError: no route")), waited_minutes=1)
    with pytest.raises(AirflowRescheduleException):
        task.execute(context)
    task, context = sensor(FakeRunner(Outcome(2, "ConfigError: no such key")))
    with pytest.raises(AirflowFailException, match=r"no such key \(exit code 2\)"):
        task.execute(context)


def test_looking_logs_in_as_jobs_do_and_shows_no_password(home, monkeypatch):
    connection = {"conn_type": "aws", "login": "AKIAEXAMPLE", "password": "wJalrXUtnFEMI"}
    told = []
    monkeypatch.setenv("AIRFLOW_CONN_OF_S3", json.dumps(connection))
    monkeypatch.setenv("NIGHTMILL_S3_CONNECTION", "of_s3")
    runner = FakeRunner([])
    runner.says = "looking at https://ann:pa55word@storage/incoming"
    task, context = sensor(runner)
    monkeypatch.setattr(task.log, "info", lambda form, *values: told.append(form % values))
    task.execute(context)
    given = {name: runner.environment[name] for name in ("AWS_ACCESS_KEY_ID", SECRET)}
    assert given == {"AWS_ACCESS_KEY_ID": connection["login"], SECRET: connection["password"]}
    (line,) = (each for each in told if "storage/incoming" in each)
    assert "pa55word" not in line


def test_trouble_with_a_password_in_it_is_told_without(home):
    lost = Outcome(75, "TransientError: https://ann:pa55word@storage does not answer")
    task, context = sensor(FakeRunner(lost), waited_minutes=31)
    with pytest.raises(AirflowFailException) as caught:
        task.execute(context)
    assert "storage does not answer" in str(caught.value)
    assert "pa55word" not in str(caught.value)


def test_event_carries_the_counts_of_the_manifests(published):
    scored = published("tickets", "2026-11-27", "2026-11-28", rows=12)
    extra = event_extra(scored)
    last = Path(scored["partitions"]["2026-11-28"]["manifest"])
    partitions = extra.pop("partitions")
    assert extra == {
        "task": "tickets",
        "first": "2026-11-27",
        "date": "2026-11-28",
        "run": "run-2026-11-28",
        "manifest": str(last),
        "model": "tickets",
        "model_version": "7",
        "model_digest": "d" * 64,
        "rows_read": 24,
        "rows_scored": 20,
        "rows_quarantined": 4,
        "rows_to_review": 2,
    }
    assert [(each["date"], each["rows_read"]) for each in partitions] == [
        ("2026-11-27", 12),
        ("2026-11-28", 12),
    ]


def test_event_of_a_manifest_that_is_gone_is_an_error(published):
    scored = published("tickets", "2026-11-28")
    Path(scored["partitions"]["2026-11-28"]["manifest"]).unlink()
    with pytest.raises(ArtifactError, match="does not exist"):
        event_extra(scored)


def test_asset_of_the_scores_is_named_by_its_address():
    asset = scores_asset("tickets")
    assert asset.name == asset.uri == "x-nightmill://scores/tickets"


@pytest.mark.parametrize("error", [AirflowException("away"), AirflowFailException("broken")])
def test_a_step_that_only_looks_does_not_fail_the_night(monkeypatch, error):
    def fail(self, *_):
        raise error

    monkeypatch.setattr(JobOperator, "execute", fail)
    monkeypatch.setattr(JobOperator, "resume", fail)
    task = SoftJobOperator(task_id="monitor", job="monitor", arguments=[])
    with pytest.raises(AirflowSkipException, match="the night is published all the same"):
        task.execute({})
    with pytest.raises(AirflowSkipException, match="the night is published all the same"):
        task.resume({}, {})


def failed(message, *, job="validate", arguments=None, exception=AirflowFailException):
    run = SimpleNamespace(
        run_id="scheduled__1",
        partition_key=None,
        logical_date=datetime(2026, 11, 28, 2, tzinfo=UTC),
    )
    task = SimpleNamespace(job=job, arguments=ARGUMENTS if arguments is None else arguments)
    return {
        "ti": SimpleNamespace(dag_id="nightly_scoring_tickets", task_id=job, try_number=1),
        "dag_run": run,
        "params": {"date": "", "through": ""},
        "task": task,
        "exception": exception(message),
    }


def test_failure_is_told_with_what_to_do_and_the_command_to_repeat():
    message = failure_message(
        failed("job 'validate': DataContractError: no input for date 2026-11-28 (exit code 3)")
    )
    assert message.splitlines() == [
        "DAG nightly_scoring_tickets, task validate, date 2026-11-28: "
        "the data break their contract",
        "error: job 'validate': DataContractError: no input for date 2026-11-28 (exit code 3)",
        "what to do: tell the owner of the data; once they are mended, clear the task",
        "by hand: nightmill validate tickets --date 2026-11-28 --through 2026-11-28",
        "run: scheduled__1, try 1",
    ]


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("(exit code 1)", "a bug in Nightmill"),
        ("(exit code 2)", "a setting is wrong"),
        ("(exit code 4)", "a model is missing, damaged or failed a gate"),
        ("(exit code 5)", "some shards failed, the others are kept"),
        ("(exit code 75)", "passing trouble that did not pass"),
        ("(killed by signal 9)", "the job was killed"),
        ("timed out", "the task failed outside of the job"),
    ],
)
def test_every_ending_has_its_meaning(ending, told):
    assert f": {told}\n" in failure_message(failed(f"job 'score': x {ending}", job="score"))


def test_notice_has_no_line_breaks_of_the_error_and_no_end_of_it():
    message = failure_message(failed("first\nsecond " + "x" * 2000, arguments="{{ later }}"))
    assert len(message.splitlines()) == 4
    assert "error: first second" in message
    assert len(message) < 900


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver(monkeypatch):
    """An address that takes notices, as the Airflow connection `pager`."""
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.got, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    connection = {
        "conn_type": "http", "host": "127.0.0.1", "port": server.server_port, "login": "mill",
        "password": "hush-hush", "extra": {"path": "/hook"},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps(connection))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_notices_go_to_log_and_connection(receiver, caplog):
    with caplog.at_level(logging.ERROR, logger="dags.nightly.notices"):
        tell_failure(failed("job 'score': OOM (killed by signal 9)", job="score"), to="pager")
    ((path, authorization, notice),) = receiver.got
    assert (path, authorization[:6]) == ("/hook", "Basic ")
    assert (notice["event"], notice["dag_id"]) == ("failure", "nightly_scoring_tickets")
    assert "the job was killed" in notice["text"]
    assert notice["text"] in caplog.text


def test_deadline_names_the_run_as_airflow_calls_it(receiver):
    told = {"dag_id": "nightly_scoring_tickets", "minutes": 90, "to": "pager"}
    context = {"dag_run": {"dag_run_id": "scheduled__1"}, "deadline": {"id": "d"}}
    path = "dags.nightly.notices.tell_deadline"
    log = logging.getLogger(__name__)

    def quiet(message, **_):
        log.debug("%s", message)

    logger = SimpleNamespace(debug=quiet, info=quiet, exception=quiet)
    assert execute_callback(path, {**told, "context": context}, None, None, logger) == (True, None)

    ((_, _, notice),) = receiver.got
    assert notice["event"] == "deadline"
    assert notice["text"].startswith(
        "DAG nightly_scoring_tickets, run scheduled__1: not done 90 minutes after it was queued"
    )


@pytest.mark.parametrize("broken", ["refused", "unknown"])
def test_notice_that_cannot_be_delivered_is_told_without_its_address(receiver, caplog, broken):
    receiver.status = 500
    connection = "pager" if broken == "refused" else "nobody_has_this"
    with caplog.at_level(logging.WARNING, logger="dags.nightly.notices"):
        notify("it failed", event="failure", dag_id="d", to=connection)
    assert "it failed" in caplog.text
    assert f"not delivered by connection '{connection}'" in caplog.text
    assert "hush-hush" not in caplog.text
    assert "/hook" not in caplog.text


def test_keys_of_the_task_file_reach_the_dag(home):
    (home / "tasks").mkdir()
    text = (DAGS.parent / "schemas" / "tasks" / "tickets.yaml").read_text()
    (home / "tasks" / "chats.yaml").write_text(
        text.replace("name: tickets", "name: chats")
        + "schedule:\n  cron: 30 1 * * *\n  max_active_runs: 2\n  pool: gpu\n  pool_slots: 2\n"
        "  priority_weight: 9\n  execution_timeout_minutes: 45\n  deadline_minutes: 90\n"
        "  notify: pager\n  late: {wait_minutes: 60, poll_minutes: 3, then: skip}\n"
    )
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    dag = bag.dags["nightly_scoring_chats"]
    assert (dag.timetable.expression, dag.max_active_runs) == ("30 1 * * *", 2)
    score, validate = dag.get_task("score"), dag.get_task("validate")
    assert (score.pool, score.pool_slots, score.priority_weight) == ("gpu", 2, 9)
    assert (validate.pool, validate.priority_weight) == ("default_pool", 1)
    assert {task.execution_timeout for task in dag.tasks} == {timedelta(minutes=45)}
    waiting = dag.get_task("wait_for_input")
    assert (waiting.mode, waiting.timeout, waiting.poke_interval) == ("reschedule", 3600, 180)
    assert waiting.downstream_task_ids == {"validate"}
    (alert,) = dag.deadline
    assert alert.interval == timedelta(minutes=90)
    assert alert.callback.path == "dags.nightly.notices.tell_deadline"
    assert alert.callback.kwargs == {
        "dag_id": "nightly_scoring_chats", "minutes": 90, "to": "pager",
    }  # fmt: skip
    assert score.on_failure_callback[0].keywords == {"timezone": "UTC", "to": "pager"}
    stored = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert stored.get_task("score").pool == "gpu"


def test_process_that_runs_a_task_makes_that_tasks_dag_alone(home, monkeypatch):
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "nightly_scoring_tickets")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "score")
    bag = DagBag(str(DAGS / "nightly_scoring.py"))
    assert [*bag.dags] == ["nightly_scoring_tickets"]
