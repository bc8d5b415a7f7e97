"""Ids that Airflow takes."""

from __future__ import annotations

import re


def airflow_id(name: str) -> str:
    """A name as part of an id; a character that Airflow does not take becomes `_`."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def nightly_dag_id(task: str) -> str:
    """Id of the DAG that scores a task's nights."""
    return f"nightly_scoring_{airflow_id(task)}"
