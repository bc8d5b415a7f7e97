"""Which Airflow task started this process, by the variables that Airflow sets for every task."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AirflowTask:
    """A try of a task in a run of a DAG; `logical_date` is empty where the run has none."""

    dag: str
    task: str
    run: str
    try_number: str
    logical_date: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """As log lines and events carry it."""
        return {
            "dag": self.dag,
            "dag_task": self.task,
            "dag_run": self.run,
            "try": self.try_number,
        }


def airflow_task() -> AirflowTask | None:
    """The task by `AIRFLOW_CTX_*`, which also travel to a Ray cluster; None outside of Airflow."""
    dag, task = os.environ.get("AIRFLOW_CTX_DAG_ID"), os.environ.get("AIRFLOW_CTX_TASK_ID")
    if not dag or not task:
        return None
    return AirflowTask(
        dag,
        task,
        run=os.environ.get("AIRFLOW_CTX_DAG_RUN_ID", ""),
        try_number=os.environ.get("AIRFLOW_CTX_TRY_NUMBER", "1"),
        logical_date=os.environ.get("AIRFLOW_CTX_LOGICAL_DATE", ""),
    )
