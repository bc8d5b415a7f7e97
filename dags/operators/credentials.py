"""What jobs on this machine need to log in, out of Airflow's connections."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from collections.abc import Callable

MLFLOW_VARIABLE = "NIGHTMILL_MLFLOW_CONNECTION"
S3_VARIABLE = "NIGHTMILL_S3_CONNECTION"


def connection_environment() -> dict[str, str]:
    """Variables for a job's process from the connections that two variables name by their ids.

    Where neither is set there are none, and the job has what Airflow's own environment holds. They
    are read when a task runs; Airflow masks what they hold in the task's log.

    Raises:
        AirflowNotFoundException: there is no such connection.
    """
    found: dict[str, str] = {}
    for variable, read in _READERS.items():
        if connection_id := os.environ.get(variable):
            found |= read(BaseHook.get_connection(connection_id))
    return {name: value for name, value in found.items() if value}


def _of_mlflow(connection: Any) -> dict[str, str]:
    scheme, host = connection.schema or "http", connection.host or ""
    if "://" in host:
        scheme, _, host = host.partition("://")
    port = f":{connection.port}" if connection.port else ""
    login, password = connection.login or "", connection.password or ""
    return {
        "MLFLOW_TRACKING_URI": f"{scheme}://{host}{port}",
        "MLFLOW_TRACKING_USERNAME": login,
        "MLFLOW_TRACKING_PASSWORD": password if login else "",
        "MLFLOW_TRACKING_TOKEN": "" if login else password,
    }


def _of_s3(connection: Any) -> dict[str, str]:
    extra = connection.extra_dejson
    return {
        "AWS_ACCESS_KEY_ID": connection.login or "",
        "AWS_SECRET_ACCESS_KEY": connection.password or "",
        "AWS_SESSION_TOKEN": extra.get("aws_session_token", ""),
        "AWS_REGION": extra.get("region_name", ""),
        "AWS_ENDPOINT_URL": extra.get("endpoint_url", ""),
    }


_READERS: dict[str, Callable[[Any], dict[str, str]]] = {
    MLFLOW_VARIABLE: _of_mlflow,
    S3_VARIABLE: _of_s3,
}
