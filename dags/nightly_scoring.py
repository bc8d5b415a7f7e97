"""One DAG per task file: each night it validates, scores and reports the day that has ended."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import itertools
import logging
import re

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import load_task, task_names
from schemas.partition import resolve_dates
from schemas.task import TaskConfig

log = logging.getLogger(__name__)

TAGS = ["nightmill", "scoring"]
# Airflow's form takes an empty field of type "string" for a missing one and blocks the button.
OPTIONAL_TEXT = ["string", "null"]
DATE_PATTERN = r"^(\d{4}-\d{2}-\d{2})?$"
DOC = """
### Nightly scoring of `{name}`

{description}

| step | what it leaves |
| --- | --- |
| `resolve_dates` | the dates of this run, first and last |
| `validate` | quality pages; the run stops here if the data break their contract |
| `score` | Parquet and `manifest.json`, published in one step |
| `report` | rows, quarantine, quality and samples, in this task's log |

Which date: the parameter `date` (up to `through`), else the partition key, else the run's logical
date, which on a schedule is the day that has ended. A run with none of them fails; nothing is
ever read from the clock. (Airflow's own trigger form fills in the present moment as the logical
date: name the date you mean.)

**Running a date again is safe**: with the same data and model nothing is done, after a crash only
what is missing. Several days: use Airflow's backfill, or `through`.
"""
BROKEN_DOC = """
### The task file of `{name}` cannot be loaded

    {problem}

Mend the file; this DAG heals at the next parse. Until then its runs fail, so that a night that
was not scored does not pass unseen.
"""


def date_params() -> dict[str, Param]:
    """The trigger form: both empty on a schedule."""
    return {
        "date": Param(
            "",
            type=OPTIONAL_TEXT,
            pattern=DATE_PATTERN,
            title="Date",
            description="Partition to score, as YYYY-MM-DD. Empty: the run's own date.",
        ),
        "through": Param(
            "",
            type=OPTIONAL_TEXT,
            pattern=DATE_PATTERN,
            title="Through",
            description="Last date of a range that begins at Date. Empty: that one date.",
        ),
    }


@task(task_id="resolve_dates", multiple_outputs=True)
def dates_of_run() -> dict[str, str]:
    """First and last date of this run."""
    context = get_current_context()
    run = context["dag_run"]
    try:
        dates = resolve_dates(
            context["params"], partition_key=run.partition_key, logical_date=run.logical_date
        )
    except ConfigError as error:
        raise AirflowFailException(str(error)) from error
    return {"first": dates[0].isoformat(), "last": dates[-1].isoformat()}


def scoring_dag(name: str, config: TaskConfig) -> DAG:
    """The DAG of a task whose file is sound.

    Raises:
        AirflowTimetableInvalid: the task's schedule is no cron expression.
    """
    with DAG(
        dag_id=dag_id_of(name),
        description=config.description,
        doc_md=DOC.format(name=name, description=config.description),
        schedule=timetable_of(config.schedule),
        catchup=False,
        max_active_runs=1,
        params=date_params(),
        tags=TAGS,
    ) as dag:
        dates = dates_of_run()
        arguments = [name, "--date", dates["first"], "--through", dates["last"]]
        steps = [
            JobOperator(task_id=job, job=job, arguments=arguments, **RETRY_ARGUMENTS)
            for job in ("validate", "score", "report")
        ]
        for before, after in itertools.pairwise(steps):
            before >> after
    return dag


def broken_dag(name: str, problem: str) -> DAG:
    """A DAG with the same id whose only task fails with the problem.

    It keeps the default schedule: the file that would say another one cannot be read.
    """
    with DAG(
        dag_id=dag_id_of(name),
        description=f"the task file of {name} cannot be loaded",
        doc_md=BROKEN_DOC.format(name=name, problem=problem),
        schedule=timetable_of(TaskConfig.model_fields["schedule"].default),
        catchup=False,
        max_active_runs=1,
        params=date_params(),
        tags=[*TAGS, "broken"],
    ) as dag:

        @task(task_id="load_task")
        def fail() -> None:
            raise AirflowFailException(problem)

        fail()
    return dag


def dag_id_of(name: str) -> str:
    """Id of a task's DAG; a character that Airflow does not take becomes `_`."""
    return f"nightly_scoring_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}"


def timetable_of(schedule: str | None) -> CronDataIntervalTimetable | None:
    """Runs for the day that has ended (Airflow 3's plain cron string means the day it fires)."""
    if schedule is None:
        return None
    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    timetable.validate()
    return timetable


def dag_of(name: str, home: Home) -> DAG:
    """The DAG of a task; trouble with its file stays its own."""
    try:
        return scoring_dag(name, load_task(name, home))
    except Exception as error:  # noqa: BLE001 - whatever is in one file, the other DAGs must load
        problem = str(error) if isinstance(error, ConfigError) else f"task {name!r}: {error}"
        log.warning("task file of %s cannot be loaded: %s", name, problem)
        return broken_dag(name, problem)


for dag in (dag_of(name, home) for home in (Home.find(),) for name in task_names(home)):
    globals()[dag.dag_id] = dag
