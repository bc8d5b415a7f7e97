"""Looks at every task's nights once a day; may start a retraining, or score late input again."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import CronDataIntervalTimetable, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.monitoring.actions import claim_of, rescoring, retraining, task_id_of
from dags.nightly.dates import date_field, dates_of
from dags.nightly.ids import nightly_dag_id
from dags.nightly.notices import tell_failure
from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import task_names

# In the morning, when most nights are done and people can be asked for their approval.
CRON = "0 6 * * *"
DOC = """
### Look at the nights of all tasks

For each task file: `look_…` compares the night with the ones before it and with outcomes that have
arrived, and ends with *ok*, *watch* or *retrain* and the evidence (also in the home's folder
`monitor`).

* `retrain_…` starts the DAG `retrain`, with the evidence as its reason, where the task file has
  `monitor.retrain: true` and neither the cool-down nor the daily bound speaks against it. That DAG
  asks a person before anything scores.
* `rescore_…` starts the task's nightly DAG once for each date whose input has changed since it was
  scored, as far back as `schedule.late.rescore_days`.

The keys are in the task files' sections `monitor` and `schedule`. A task that cannot be looked at
fails its own steps only.
"""
PARAMS = {
    "date": date_field("Date", "Night to look at, as YYYY-MM-DD. Empty: the run's own date."),
}


@task(task_id="resolve_date")
def date_of_run() -> str:
    """The night that is looked at."""
    try:
        return dates_of(get_current_context())[-1].isoformat()
    except ConfigError as error:
        raise AirflowFailException(str(error)) from error


def steps_of(name: str, date: Any) -> None:
    """The steps of one task file, beside those of the others."""
    look = JobOperator(
        task_id=task_id_of("look", name),
        job="monitor",
        arguments=[name, "--date", date, "--claim", claim_of(name, date)],
        **RETRY_ARGUMENTS,
    )

    @task(task_id=task_id_of("granted", name))
    def granted(answer: dict[str, Any]) -> dict[str, Any]:
        params = retraining(name, answer)
        if params is None:
            raise AirflowSkipException(f"no retraining: {answer['retrain']['reason']}")
        return params

    @task(task_id=task_id_of("late", name))
    def late(answer: dict[str, Any], date: str) -> list[dict[str, Any]]:
        return rescoring(date, answer)

    TriggerDagRunOperator(
        task_id=task_id_of("retrain", name),
        trigger_dag_id="retrain",
        trigger_run_id=claim_of(name, date),
        conf=granted(look.output),
        logical_date=None,
        skip_when_already_exists=True,
    )
    TriggerDagRunOperator.partial(
        task_id=task_id_of("rescore", name),
        trigger_dag_id=nightly_dag_id(name),
        logical_date=None,
        skip_when_already_exists=True,
    ).expand_kwargs(late(look.output, date))


@dag(
    dag_id="monitor",
    description="Compare each task's nights, and start what the verdicts ask for.",
    doc_md=DOC,
    schedule=CronDataIntervalTimetable(CRON, timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    default_args={"on_failure_callback": tell_failure},
    tags=["nightmill", "monitoring"],
)
def monitor() -> None:
    """The steps of every task file, beside each other."""
    date = date_of_run()
    for name in task_names(Home.find()):
        steps_of(name, date)


monitor()
