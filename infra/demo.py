"""The product in small: sample data, retrain and nightly scoring through Airflow: `make demo`."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click

REPOSITORY = Path(__file__).resolve().parent.parent
TASKS = ("tickets", "reviews")
FIRST_DATE = dt.date(2026, 11, 22)
DAYS = 7
LAST_DATE = FIRST_DATE + dt.timedelta(days=DAYS - 1)
# A run's name in Airflow follows from its date: with a fixed one a second demo finds the first's.
RETRAIN_DATE = f"{LAST_DATE + dt.timedelta(days=1)}T00:00:00+00:00"


@click.command()
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
def main(*, home: Path) -> None:
    """Run the demo in HOME; a second run finds what the first made and does only what is new."""
    home = home.resolve()
    started = time.monotonic()
    os.environ.update(
        NIGHTMILL_HOME=str(home),
        NIGHTMILL_LOG_FORMAT="text",
        HF_HUB_OFFLINE="1",
        MLFLOW_TRACKING_URI=f"sqlite:///{home / 'mlflow.db'}",
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )
    os.environ.pop("RAY_ADDRESS", None)
    heading(f"1. A week of sample tickets and reviews, {FIRST_DATE} to {LAST_DATE}")
    nightmill("sample", "--first-date", str(FIRST_DATE), "--days", str(DAYS))
    heading("2. DAG `retrain`: fine-tune, quantize, gate, register, promote")
    run_dags([retrain(task) for task in TASKS])
    heading("3. DAG `nightly_scoring`: validate, score, publish the week")
    run_dags([nightly(task) for task in TASKS])
    heading("4. What a person wants to see")
    for task in TASKS:
        nightmill("report", task, "--date", str(FIRST_DATE), "--through", str(LAST_DATE))
    click.echo(closing(home, seconds=time.monotonic() - started))


def retrain(task: str) -> dict[str, object]:
    """A retrain run that asks nobody: there is no server here to answer in."""
    conf = {"task": task, "approval": False}
    return {"dag": "retrain", "conf": conf, "logical_date": RETRAIN_DATE}


def nightly(task: str) -> dict[str, object]:
    """One run that catches up on the whole week, so that Ray starts once."""
    conf = {"date": str(FIRST_DATE), "through": str(LAST_DATE)}
    return {"dag": f"nightly_scoring_{task}", "conf": conf, "logical_date": RETRAIN_DATE}


def run_dags(runs: list[dict[str, object]]) -> None:
    """Runs DAGs one after the other in one Airflow process."""
    call("infra/run_dag.py", "--home", os.environ["NIGHTMILL_HOME"], "--runs", json.dumps(runs))


def nightmill(*arguments: str) -> None:
    """Runs a job."""
    call("-m", "jobs", *arguments)


def call(*arguments: str) -> None:
    """Runs this interpreter; a failure ends the demo with the same exit code."""
    result = subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, check=False)
    if result.returncode:
        sys.exit(result.returncode)


def heading(text: str) -> None:
    """A line that stands out."""
    click.secho(f"\n{text}", bold=True)


def closing(home: Path, *, seconds: float) -> str:
    """Where everything lies and which command opens it."""
    return f"""
Everything is in {home}; the demo took {seconds:.0f} s.
  Airflow and MLflow in the browser   make up NIGHTMILL_HOME={home}
  data-quality pages                  open {home}/quality/tickets/date={LAST_DATE}/index.html
  a model in a notebook               export MLFLOW_TRACKING_URI=sqlite:///{home}/mlflow.db
                                      mlflow.pyfunc.load_model("models:/tickets@champion")
  a night again (no inference)        export NIGHTMILL_HOME={home}
                                      .venv/bin/nightmill score tickets --date {LAST_DATE}
"""


if __name__ == "__main__":
    main()
