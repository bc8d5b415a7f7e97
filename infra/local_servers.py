"""MLflow and Airflow as processes of this machine: where their data lie and who may log in."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from accounts import SERVICE, Accounts
from databases import ACCOUNTS, AIRFLOW, MLFLOW
from logins import passwords_in
from processes import Server, free_port, start
from settings import LOCALHOST, PASSWORD_FILE, ROLES, USER, airflow_environment
from settings import server_environment as airflow_server_environment
from tracking_server import Stores, login_environment, server_arguments, server_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from databases import DatabaseServer

DATABASE_VARIABLE = "NIGHTMILL_DATABASE"
_WORKER_LOG_PORT = 8793
_TRIGGER_LOG_PORT = 8794
_SECRET_KEY = "secret_key"  # noqa: S105 - the name of an entry
_NAME = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class LocalServers:
    """Starts both servers of a home.

    `database` is a PostgreSQL server for the metadata of both, SQLite in the home without it.
    `users` are roles by name; where there are any, MLflow asks for a login as well: they read, and
    only the service account that jobs use edits models.
    """

    home: Path
    repository: Path
    database: DatabaseServer | None = None
    users: Mapping[str, str] = field(default_factory=dict)

    def start_mlflow(self, port: int) -> Server:
        """The tracking server and registry, with all artefacts behind it."""
        self.home.mkdir(parents=True, exist_ok=True)
        stores = self._stores()
        logins: dict[str, str] = {}
        if self.users:
            logins = login_environment(
                self.home / "mlflow",
                stores,
                admin_password=self.password(USER),
                secret_key=self._own_secrets()[_SECRET_KEY],
            )
        arguments = server_arguments(stores, host=LOCALHOST, port=port, logins=self.users != {})
        return start(
            "MLflow",
            [_program("mlflow"), "server", *arguments],
            environment={**self._environment(), **server_environment(), **logins},
            health=f"http://{LOCALHOST}:{port}/health",
            log=self.home / "logs" / "mlflow.log",
        )

    def start_airflow(self, wanted_port: int, *, mlflow: Server) -> Server:
        """All of Airflow in one group; its jobs use the given tracking server."""
        address = mlflow.health.removesuffix("/health")
        taken = {int(address.rpartition(":")[2])}
        ports = []
        for wanted in (wanted_port, _WORKER_LOG_PORT, _TRIGGER_LOG_PORT):
            ports.append(free_port(wanted, host=LOCALHOST, taken=taken))
            taken.add(ports[-1])
        settings = airflow_environment(
            self.home,
            repository=self.repository,
            database=self.database.address(AIRFLOW) if self.database else None,
            users=self.users,
        ) | airflow_server_environment(
            port=ports[0], worker_log_port=ports[1], trigger_log_port=ports[2]
        )
        (self.home / "airflow").mkdir(parents=True, exist_ok=True)
        tracking = {"MLFLOW_TRACKING_URI": address, **self._service_login()}
        return start(
            "Airflow",
            [_program("airflow"), "standalone"],
            environment={**self._environment(), **settings, **tracking},
            health=f"http://{LOCALHOST}:{ports[0]}/api/v2/monitor/health",
            log=self.home / "logs" / "airflow.log",
        )

    def make_accounts(self, mlflow: str) -> None:
        """Gives MLflow at this address the accounts of all users and of the jobs.

        Raises:
            AccountError: MLflow refuses, as where its admin has another password than Airflow's.
        """
        if not self.users:
            return
        accounts = Accounts(mlflow, admin=USER, password=self.password(USER))
        for name in self.users:
            accounts.ensure(name, self.password(name))
        accounts.ensure(SERVICE, self._own_secrets()[SERVICE])
        accounts.let_manage(SERVICE)

    def password(self, name: str) -> str:
        """A user's password at both servers."""
        path = self.home / "airflow" / PASSWORD_FILE
        return passwords_in(path, [USER, *self.users])[name]

    def _stores(self) -> Stores:
        own = Stores.in_home(self.home)
        if self.database is None:
            return own
        return Stores(
            metadata=self.database.address(MLFLOW),
            accounts=self.database.address(ACCOUNTS),
            artifacts=own.artifacts,
        )

    def _own_secrets(self) -> dict[str, str]:
        return passwords_in(self.home / "mlflow" / "secrets.json", [SERVICE, _SECRET_KEY])

    def _service_login(self) -> dict[str, str]:
        if not self.users:
            return {}
        return {
            "MLFLOW_TRACKING_USERNAME": SERVICE,
            "MLFLOW_TRACKING_PASSWORD": self._own_secrets()[SERVICE],
        }

    def _environment(self) -> dict[str, str]:
        # Airflow starts its parts by the name `airflow`, so that has to be this environment's.
        folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        ours = {**os.environ, "PATH": os.pathsep.join(folders)}
        ours.pop(DATABASE_VARIABLE, None)  # its password goes by PGPASSWORD, and not twice
        return {**ours, **(self.database.environment if self.database else {})}


def parse_users(text: str) -> dict[str, str]:
    """Roles by name from `ann:viewer,ben:op`.

    Raises:
        ValueError: a part is not of that form, a role is unknown, or a name is taken.
    """
    users: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, role = part.partition(":")
        if not _NAME.fullmatch(name) or role not in ROLES:
            raise ValueError(f"user {part!r}: expected NAME:ROLE with a role of {', '.join(ROLES)}")
        if name in {USER, SERVICE, *users}:
            raise ValueError(f"user {name!r} is there already; choose another name")
        users[name] = role
    return users


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)
