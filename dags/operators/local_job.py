"""How a job is started on this machine: its command line and its environment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from dags.operators.credentials import connection_environment
from schemas.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PYTHON_VARIABLE = "NIGHTMILL_PYTHON"


def job_command(
    job: str, arguments: Sequence[str], result: Path, *, python: str | None = None
) -> list[str]:
    """`PYTHON -m jobs JOB ARGUMENTS... --home HOME --result FILE`.

    `python` is by default `NIGHTMILL_PYTHON`, else the interpreter that runs Airflow.
    """
    python = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    where = ["--home", str(Home.find().root), "--result", str(result)]
    return [python, "-m", "jobs", job, *arguments, *where]


def job_environment() -> dict[str, str]:
    """This process's variables, with what Airflow's connections hold for jobs.

    Raises:
        AirflowNotFoundException: a connection that is named is not there.
    """
    # The task log adds its own time and level to each line; text reads best inside of it.
    ours = {"NIGHTMILL_LOG_FORMAT": "text", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **connection_environment(), **ours}
