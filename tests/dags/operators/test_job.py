from __future__ import annotations

import signal
import sys

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.operators.answer import MAX_RESULT_BYTES
from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from dags.operators.runner import Outcome


def operator(**kwargs):
    return JobOperator(**{"task_id": "score", "job": "score", "arguments": ["tickets"], **kwargs})


def test_runs_the_command_line_and_returns_the_result(home, fake_jobs):
    fake_jobs.answer("score", result={"rows": 7, "manifest": "scores/manifest.json"})

    result = operator(arguments=["tickets", "--date", "2026-11-28"]).execute({})

    assert result == {"rows": 7, "manifest": "scores/manifest.json"}
    expected = ["score", "tickets", "--date", "2026-11-28", "--home", str(home), "--result"]
    assert fake_jobs.calls() == [expected]


def test_result_file_is_gone_afterwards(home, fake_jobs):
    class Spy:
        def run(self, command, *, environment, on_line):
            self.result, self.environment = command[-1], environment
            with open(self.result, "w") as file:
                file.write("{}")
            return Outcome(0, "")

        def stop(self):
            raise AssertionError("nobody stopped it")

    spy = Spy()
    assert operator(runner=spy).execute({}) == {}
    with pytest.raises(FileNotFoundError):
        open(spy.result)
    assert spy.environment["NIGHTMILL_LOG_FORMAT"] == "text"


@pytest.mark.parametrize("code", [5, 75, -signal.SIGKILL, -signal.SIGTERM])
def test_passing_trouble_is_retried(home, fake_jobs, code):
    fake_jobs.answer("score", exit_code=code, output="12:00:00 ERROR   ShardError: 2 of 9 failed")

    with pytest.raises(AirflowException, match=r"job 'score': ShardError: 2 of 9 failed") as caught:
        operator().execute({})

    assert not isinstance(caught.value, AirflowFailException)
    ending = f"(exit code {code})" if code > 0 else f"(killed by signal {-code})"
    assert str(caught.value).endswith(ending)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 99])
def test_lasting_trouble_fails_at_once(home, fake_jobs, code):
    output = "12:00:00 ERROR   ConfigError: unknown key 'x'\n12:00:01 INFO    bye"
    fake_jobs.answer("score", exit_code=code, output=output)

    message = rf"^job 'score': ConfigError: unknown key 'x' \(exit code {code}\)$"
    with pytest.raises(AirflowFailException, match=message):
        operator().execute({})


def test_without_an_error_line_the_last_line_speaks(home, fake_jobs):
    fake_jobs.answer("score", exit_code=1, output="Traceback\nValueError: no")
    with pytest.raises(AirflowFailException, match=r"ValueError: no \(exit code 1\)"):
        operator().execute({})


def test_result_may_have_16_kib_and_no_byte_more(home, fake_jobs):
    frame = len('{"x": ""}')
    fake_jobs.answer("score", result={"x": "a" * (MAX_RESULT_BYTES - frame)})
    assert len(operator().execute({})["x"]) == MAX_RESULT_BYTES - frame

    fake_jobs.answer("score", result={"x": "a" * (MAX_RESULT_BYTES - frame + 1)})
    with pytest.raises(AirflowFailException, match=r"job 'score': its result has 16385 bytes"):
        operator().execute({})


def test_success_without_a_result_file_fails(home, fake_jobs):
    fake_jobs.answer("score", result=None)
    with pytest.raises(AirflowFailException, match="'score' ended well but wrote no result"):
        operator().execute({})


def test_result_that_is_no_object_fails(home, fake_jobs):
    fake_jobs.answer("score", result=[1])
    with pytest.raises(AirflowFailException, match="expected an object as its result, got list"):
        operator().execute({})


def test_arguments_are_templated(home, fake_jobs):
    job = operator(arguments=["{{ params.task }}", "--date", "{{ ds }}"])

    job.render_template_fields({"params": {"task": "reviews"}, "ds": "2026-11-28"})

    assert job.arguments == ["reviews", "--date", "2026-11-28"]


@pytest.mark.parametrize("arguments", ["tickets", [1], None])
def test_arguments_that_are_no_strings_fail(home, fake_jobs, arguments):
    with pytest.raises(AirflowFailException, match="expected its arguments as a list of strings"):
        operator(arguments=arguments).execute({})
    assert fake_jobs.calls() == []


def test_interpreter_is_parameter_then_variable_then_own(home, monkeypatch, tmp_path):
    monkeypatch.setenv("NIGHTMILL_PYTHON", "/from/variable")
    assert operator(python="/from/parameter").command(tmp_path)[0] == "/from/parameter"
    assert operator().command(tmp_path)[0] == "/from/variable"
    monkeypatch.delenv("NIGHTMILL_PYTHON")
    assert operator().command(tmp_path)[:4] == [sys.executable, "-m", "jobs", "score"]


def test_retries_wait_longer_each_time():
    job = operator(**RETRY_ARGUMENTS)
    assert (job.retries, job.retry_exponential_backoff) == (2, 2.0)
    assert job.retry_delay.total_seconds() == 60


def test_kill_before_the_job_runs_is_harmless():
    job = operator()
    job.on_kill()
    assert job.runner is None
