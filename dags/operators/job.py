"""The one operator that reaches the work: it runs a job by its command line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.operators.runner import Outcome, Runner, SubprocessRunner
from schemas.errors import RETRYABLE_EXIT_CODES
from schemas.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTHON_VARIABLE = "NIGHTMILL_PYTHON"
MAX_RESULT_BYTES = 16 * 1024

# For tasks that run jobs: what may pass by itself is tried again, each time after a longer wait.
RETRY_ARGUMENTS: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
}


class JobOperator(BaseOperator):  # type: ignore[misc]
    """Runs `python -m jobs JOB ARGUMENTS... --home HOME --result FILE` and returns its result.

    The job's exit code decides what Airflow does next: success, retry (shards failed, passing
    trouble, killed by a signal) or fail at once.

    Args:
        job: name of the job, as `nightmill jobs` lists it.
        arguments: its command line without home and result; a template, or the list of strings
            that another task returned.
        python: interpreter that has the job's packages; by default `NIGHTMILL_PYTHON`, else the
            one that runs Airflow.
        runner: where the command runs; by default a subprocess.
        **kwargs: what every operator takes.
    """

    template_fields: ClassVar[Sequence[str]] = ("arguments",)
    ui_color: ClassVar[str] = "#dbe9f6"

    def __init__(
        self,
        *,
        job: str,
        arguments: Any,
        python: str | None = None,
        runner: Runner | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.arguments = arguments
        self.python = python
        self.runner = runner

    def execute(self, context: Context) -> dict[str, Any]:
        """The job's small result, which becomes the XCom.

        Raises:
            AirflowException: the job may succeed when it is tried again.
            AirflowFailException: trying again cannot help.
        """
        self.runner = self.runner or SubprocessRunner()
        with tempfile.TemporaryDirectory(prefix="nightmill-") as folder:
            result = Path(folder) / "result.json"
            command = self.command(result)
            self.log.info("running %s", " ".join(command))
            outcome = self.runner.run(
                command, environment=_environment(), on_line=lambda line: self.log.info("%s", line)
            )
            self._check(outcome)
            return self._read(result)

    def on_kill(self) -> None:
        """Ends the job with all the processes it started."""
        if self.runner is not None:
            self.runner.stop()

    def command(self, result: Path) -> list[str]:
        """The command line, once its arguments are rendered."""
        python = self.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        home = str(Home.find().root)
        where = ["--home", home, "--result", str(result)]
        return [python, "-m", "jobs", self.job, *self._rendered(), *where]

    def _rendered(self) -> list[str]:
        arguments = self.arguments
        if isinstance(arguments, list) and all(isinstance(value, str) for value in arguments):
            return arguments
        raise AirflowFailException(
            f"job {self.job!r}: expected its arguments as a list of strings, got "
            f"{type(arguments).__name__}; mend the DAG"
        )

    def _check(self, outcome: Outcome) -> None:
        code = outcome.exit_code
        if code == 0:
            return
        ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        message = f"job {self.job!r}: {outcome.last_error or 'no output'} ({ending})"
        if code < 0 or code in RETRYABLE_EXIT_CODES:
            raise AirflowException(message)
        raise AirflowFailException(message)

    def _read(self, result: Path) -> dict[str, Any]:
        if not result.is_file():
            raise AirflowFailException(f"job {self.job!r} ended well but wrote no result file")
        size = result.stat().st_size
        if size > MAX_RESULT_BYTES:
            raise AirflowFailException(
                f"job {self.job!r}: its result has {size} bytes, at most {MAX_RESULT_BYTES} fit an "
                "XCom; let it return paths and counts only"
            )
        try:
            value = json.loads(result.read_bytes())
        except ValueError as error:
            raise AirflowFailException(f"job {self.job!r}: its result is no JSON") from error
        if not isinstance(value, dict):
            raise AirflowFailException(
                f"job {self.job!r}: expected an object as its result, got {type(value).__name__}"
            )
        return value


def _environment() -> dict[str, str]:
    # The task log adds its own time and level to each line; text reads best inside of it.
    return {**os.environ, "NIGHTMILL_LOG_FORMAT": "text", "PYTHONUNBUFFERED": "1"}
