"""Airflow's settings for one machine, in one place: the demo, `make up` and the tests use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOCALHOST = "127.0.0.1"
PASSWORD_FILE = "simple_auth_manager_passwords.json.generated"  # noqa: S105 - a file's name
USER = "admin"
# Each may also do what those before it may: look; trigger, clear and approve runs; change
# connections, variables and pools; everything.
ROLES = ("viewer", "user", "op", "admin")


def airflow_environment(
    home: Path,
    *,
    repository: Path,
    log_level: str = "INFO",
    database: str | None = None,
    users: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Environment variables of an Airflow whose folder is `home/airflow`.

    `home` is absolute; `repository` is the folder that holds `dags/`. The metadata lie in SQLite in
    that folder, or at SQLAlchemy's address `database`. `users` are roles by name, beside the
    administrator who is always there. DAGs start paused, as a schedule that nobody switched on must
    not run. At a `log_level` over INFO the task logs lose what the jobs print.
    """
    folder = home / "airflow"
    roles = {USER: "admin", **(users or {})}
    return {
        "NIGHTMILL_HOME": str(home),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(repository / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
            f"{name}:{role}" for name, role in roles.items()
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database or f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": log_level,
        # The first calls after a start come while the server is still busy; by default a task
        # that gets no answer in 5 s fails.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "SCARF_ANALYTICS": "false",
        "DO_NOT_TRACK": "1",
    }


def server_environment(*, port: int, worker_log_port: int, trigger_log_port: int) -> dict[str, str]:
    """Environment variables of the servers.

    The web page and the API answer on this machine only. Airflow gives its two small log servers
    no such setting; what they serve needs a token signed by the API server.
    """
    return {
        "AIRFLOW__API__HOST": LOCALHOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{LOCALHOST}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOCALHOST}:{port}/execution/",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
    }
