"""The product in small: sample data, retrain and nightly scoring through Airflow: `make demo`."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import click

REPOSITORY = Path(__file__).resolve().parent.parent
TASKS = ("tickets", "reviews")
FIRST_DATE = dt.date(2026, 11, 22)
DAYS = 7
HISTORY_ROWS = 800  # enough to be clearly better than guessing, few enough for six minutes
LAST_DATE = FIRST_DATE + dt.timedelta(days=DAYS - 1)
# A run started in process clears other runs of its DAG with the same logical date, so the two
# retrain runs, which go on side by side, have one each.
MOMENTS = {task: f"{LAST_DATE + dt.timedelta(days=1)}T00:0{n}:00" for n, task in enumerate(TASKS)}


@click.command()
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
def main(*, home: Path) -> None:
    """Run the demo in HOME; a second run writes the same sample and trains again."""
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
    sample = {"--first-date": FIRST_DATE, "--days": DAYS, "--history-rows": HISTORY_ROWS}
    nightmill("sample", *(str(part) for option in sample.items() for part in option))
    heading("2. Both tasks at once: DAG `retrain`, then DAG `nightly_scoring` for the week")
    run_dag("--prepare")
    run_together({task: [retrain(task), nightly(task)] for task in TASKS})
    heading("3. What a person wants to see")
    for task in TASKS:
        nightmill("report", task, "--date", str(FIRST_DATE), "--through", str(LAST_DATE))
    click.echo(closing(home, seconds=time.monotonic() - started))


def retrain(task: str) -> dict[str, object]:
    """A retrain run that asks nobody: there is no server here to answer in."""
    conf = {"task": task, "approval": False}
    return {"dag": "retrain", "conf": conf, "logical_date": MOMENTS[task]}


def nightly(task: str) -> dict[str, object]:
    """One run that catches up on the whole week, so that Ray starts once."""
    conf = {"date": str(FIRST_DATE), "through": str(LAST_DATE)}
    return {"dag": f"nightly_scoring_{task}", "conf": conf, "logical_date": MOMENTS[task]}


def run_dag(*arguments: str) -> None:
    """Calls Airflow in a process of its own."""
    call("infra/run_dag.py", "--home", os.environ["NIGHTMILL_HOME"], *arguments)


def run_together(runs: dict[str, list[dict[str, object]]]) -> None:
    """Runs each task's DAGs in order, the tasks beside each other; a failure ends the demo."""
    home = os.environ["NIGHTMILL_HOME"]
    processes = {
        task: subprocess.Popen(
            [sys.executable, "infra/run_dag.py", "--home", home, "--runs", json.dumps(dags)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for task, dags in runs.items()
    }
    tellers = [Thread(target=tell, args=(task, run)) for task, run in processes.items()]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    if failed := [run.wait() for run in processes.values() if run.wait()]:
        sys.exit(failed[0])


def tell(task: str, run: subprocess.Popen[str]) -> None:
    """Passes a process's lines on, each with its task's name before it."""
    for line in run.stdout or ():
        click.echo(f"{task:<8} {line.rstrip()}")


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
