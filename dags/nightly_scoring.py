"""One DAG per task file: each night it validates, scores, publishes and looks at what it did."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, get_current_context, get_parsing_context, task
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowFailException

from dags.nightly.arrival import InputSensor
from dags.nightly.dates import date_params, dates_of
from dags.nightly.ids import nightly_dag_id
from dags.nightly.notices import tell_deadline, tell_failure
from dags.nightly.publication import event_extra, scores_asset
from dags.nightly.soft import SoftJobOperator
from dags.nightly.timetable import timetable_of
from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from schemas.errors import ArtifactError, ConfigError
from schemas.home import Home
from schemas.load import load_task, task_names
from schemas.schedule import ScheduleConfig

if TYPE_CHECKING:
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

TAGS = ["nightmill", "scoring"]
DOC = """
### Nightly scoring of `{name}`

{description}

| step | what it leaves |
| --- | --- |
| `resolve_dates` | the dates of this run, first and last |
| `wait_for_input` | only with `schedule.late`: waits for the files, holding no worker |
| `validate` | quality pages; the run stops here if the data break their contract |
| `score` | Parquet and `manifest.json`, put in place in one step |
| `publish` | an event of the asset `x-nightmill://scores/{name}` with the manifest's counts |
| `report` | rows, quarantine, quality and samples, in this task's log |
| `monitor` | ok, watch or retrain, and why; it never fails the night |

Which date: the parameter `date` (up to `through`), else the partition key, else the `date` of the
event that started the run, else the run's logical date, which on a schedule is the day that has
ended. A run with none of them fails; nothing is ever read from the clock. (Airflow's own trigger
form fills in the present moment as the logical date: name the date you mean.)

**Running a date again is safe**: with the same data and model nothing is done, after a crash only
what is missing. Several days: use Airflow's backfill, or `through`.
"""
BROKEN_DOC = """
### The task file of `{name}` cannot be loaded

    {problem}

Mend the file; this DAG heals at the next parse. Until then its runs fail, so that a night that
was not scored does not pass unseen.
"""


@task(task_id="resolve_dates", multiple_outputs=True)
def dates_of_run(timezone: str = "UTC") -> dict[str, str]:
    """First and last date of this run."""
    try:
        dates = dates_of(get_current_context(), timezone=timezone)
    except ConfigError as error:
        raise AirflowFailException(str(error)) from error
    return {"first": dates[0].isoformat(), "last": dates[-1].isoformat()}


def publish_of(name: str) -> Any:
    """The task that tells Airflow what was published, once the scores are in their place."""
    asset = scores_asset(name)

    @task(task_id="publish", outlets=[asset])
    def publish(scored: dict[str, Any]) -> dict[str, Any]:
        try:
            extra = event_extra(scored)
        except ArtifactError as error:
            raise AirflowFailException(f"{error}; clear the task `score`") from error
        get_current_context()["outlet_events"][asset].extra = extra
        # The event has the dates one by one; what this task returns is for a glance.
        return {key: value for key, value in extra.items() if key != "partitions"}

    return publish


def scoring_dag(name: str, config: TaskConfig) -> DAG:
    """The DAG of a task whose file is sound.

    Raises:
        AirflowTimetableInvalid: the task's schedule is no cron expression.
    """
    schedule = config.schedule or ScheduleConfig(cron=None)
    with DAG(
        dag_id=nightly_dag_id(name),
        description=config.description,
        doc_md=DOC.format(name=name, description=config.description),
        schedule=timetable_of(schedule),
        catchup=False,
        max_active_runs=schedule.max_active_runs,
        params=date_params(),
        default_args=default_arguments(schedule),
        deadline=deadline_of(name, schedule),
        tags=TAGS,
    ) as dag:
        dates = dates_of_run(schedule.timezone)
        arguments = [name, "--date", dates["first"], "--through", dates["last"]]
        validate = JobOperator(
            task_id="validate", job="validate", arguments=arguments, **RETRY_ARGUMENTS
        )
        score = JobOperator(
            task_id="score", job="score", arguments=arguments,
            pool=schedule.pool, pool_slots=schedule.pool_slots,
            priority_weight=schedule.priority_weight, **RETRY_ARGUMENTS,
        )  # fmt: skip
        if schedule.late.waits:
            waiting = InputSensor(task_id="wait_for_input", arguments=arguments, late=schedule.late)
            waiting >> validate
        published = publish_of(name)(score.output)
        validate >> score
        published >> JobOperator(
            task_id="report", job="report", arguments=arguments, **RETRY_ARGUMENTS
        )
        published >> SoftJobOperator(
            task_id="monitor", job="monitor", arguments=arguments, **RETRY_ARGUMENTS
        )
    return dag


def default_arguments(schedule: ScheduleConfig) -> dict[str, Any]:
    """What every task of a night has: its time limit, and who is told when it fails for good."""
    minutes = schedule.execution_timeout_minutes
    return {
        "execution_timeout": None if minutes is None else timedelta(minutes=minutes),
        "on_failure_callback": partial(
            tell_failure, timezone=schedule.timezone, to=schedule.notify
        ),
    }


def deadline_of(name: str, schedule: ScheduleConfig) -> DeadlineAlert | None:
    """The alert for a run that takes too long, counted from when it was queued."""
    minutes = schedule.deadline_minutes
    if minutes is None:
        return None
    told = {"dag_id": nightly_dag_id(name), "minutes": minutes, "to": schedule.notify}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=minutes),
        callback=SyncCallback(tell_deadline, kwargs=told),
    )


def broken_dag(name: str, problem: str) -> DAG:
    """A DAG with the same id whose only task fails with the problem.

    It keeps the default schedule: the file that would say another one cannot be read.
    """
    schedule = ScheduleConfig()
    with DAG(
        dag_id=nightly_dag_id(name),
        description=f"the task file of {name} cannot be loaded",
        doc_md=BROKEN_DOC.format(name=name, problem=problem),
        schedule=timetable_of(schedule),
        catchup=False,
        max_active_runs=1,
        params=date_params(),
        default_args=default_arguments(schedule),
        tags=[*TAGS, "broken"],
    ) as dag:

        @task(task_id="load_task")
        def fail() -> None:
            raise AirflowFailException(problem)

        fail()
    return dag


def dag_of(name: str, home: Home) -> DAG:
    """The DAG of a task; trouble with its file stays its own."""
    try:
        return scoring_dag(name, load_task(name, home))
    except Exception as error:  # noqa: BLE001 - whatever is in one file, the other DAGs must load
        problem = str(error) if isinstance(error, ConfigError) else f"task {name!r}: {error}"
        log.warning("task file of %s cannot be loaded: %s", name, problem)
        return broken_dag(name, problem)


def wanted(name: str) -> bool:
    """Whether this process has use for a task's DAG: one that runs a task of it needs no other."""
    return get_parsing_context().dag_id in (None, nightly_dag_id(name))


for dag in (
    dag_of(name, home) for home in (Home.find(),) for name in task_names(home) if wanted(name)
):
    globals()[dag.dag_id] = dag
