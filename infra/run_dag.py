"""Runs DAGs to their end in one process: `python infra/run_dag.py --home HOME retrain`.

There is no scheduler and no server, so a run takes little more than its tasks. Runs that wait for
a person would wait for ever: give such a DAG `{"approval": false}`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent / "airflow"))

from settings import airflow_environment  # noqa: E402 - infra is no package


@click.command(
    epilog="\b\nExamples:\n"
    "  python infra/run_dag.py --home demo nightly_scoring_tickets --logical-date 2026-11-28\n"
    "  python infra/run_dag.py --home demo retrain --conf '{\"approval\": false}'\n"
    '  python infra/run_dag.py --home demo --runs \'[{"dag": "retrain", "conf": {"epochs": 1}}]\'\n'
)
@click.argument("dag_id", required=False)
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--conf", default="{}", help="Parameters of the run as a JSON object.")
@click.option("--logical-date", help="Date or time in UTC; without it the run has none.")
@click.option(
    "--runs", help='Several runs in order: a JSON list of {"dag", "conf", "logical_date"}.'
)
@click.option("--prepare", is_flag=True, help="Only make Airflow's database and load the DAGs.")
@click.option("--verbose", is_flag=True, help="Show the jobs' own log lines too.")
def main(
    *,
    dag_id: str | None,
    home: Path,
    conf: str,
    logical_date: str | None,
    runs: str | None,
    prepare: bool,
    verbose: bool,
) -> None:
    """Run a DAG, or several in order, and stop at the first that fails (exit code 1).

    Several of these commands may run at once on one home after one with --prepare has ended.
    """
    if prepare:
        store_dags(home.resolve())
        return
    if (dag_id is None) == (runs is None):
        raise click.UsageError("give a DAG id or --runs, one of the two")
    wanted = (
        _json(runs, "--runs")
        if runs
        else [{"dag": dag_id, "conf": _json(conf, "--conf"), "logical_date": logical_date}]
    )
    dags = load_dags(home.resolve(), log_level="INFO" if verbose else "WARNING")
    for run in wanted:
        if run["dag"] not in dags:
            raise click.UsageError(f"no DAG {run['dag']!r}; known: {', '.join(sorted(dags))}")
    for run in wanted:
        date = run.get("logical_date")
        if not run_dag(dags[run["dag"]], conf=run.get("conf", {}), logical_date=date):
            sys.exit(1)


def load_dags(home: Path, *, log_level: str) -> dict[str, Any]:
    """All DAGs by id; makes Airflow's database where there is none."""
    os.environ.update(airflow_environment(home, repository=REPOSITORY, log_level=log_level))
    (home / "airflow").mkdir(parents=True, exist_ok=True)
    # Airflow reads its settings when it is imported.
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415
    from airflow.utils.db import initdb  # noqa: PLC0415

    warnings.simplefilter("ignore", DeprecationWarning)  # Airflow's own, two for each run
    initdb()
    bag = DagBag(str(REPOSITORY / "dags"))
    for path, problem in bag.import_errors.items():
        click.echo(f"{path}: {problem}", err=True)
    return dict(bag.dags)


def store_dags(home: Path) -> None:
    """Makes the database and writes all DAGs to it; runs that start together would race here."""
    environment = airflow_environment(home, repository=REPOSITORY, log_level="ERROR")
    (home / "airflow").mkdir(parents=True, exist_ok=True)
    for command in (("db", "migrate"), ("dags", "reserialize")):
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *command],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            click.echo(done.stdout + done.stderr, err=True)
            sys.exit(done.returncode)


def run_dag(dag: Any, *, conf: dict[str, Any], logical_date: str | None) -> bool:
    """Whether the run succeeded; prints each task's state and seconds."""
    date = _moment(logical_date) if logical_date else None
    click.echo(f"{dag.dag_id} {json.dumps(conf)}")
    began = time.monotonic()
    run = dag.test(run_conf=conf, logical_date=date)
    for instance in _in_order(run, dag):
        seconds = f"{instance.duration:8.1f} s" if instance.duration is not None else " " * 10
        click.echo(f"  {instance.task_id:<16} {instance.state or 'not run':<16} {seconds}")
    click.echo(f"  {'the run':<16} {run.state:<16} {time.monotonic() - began:8.1f} s")
    return str(run.state) == "success"


def _in_order(run: Any, dag: Any) -> list[Any]:
    order = {task.task_id: place for place, task in enumerate(dag.topological_sort())}
    return sorted(run.get_task_instances(), key=lambda instance: order[instance.task_id])


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: not valid JSON: {error}") from error


if __name__ == "__main__":
    main()
