"""Brings up MLflow and Airflow on this machine and takes them down again: `make up`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from types import FrameType

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(REPOSITORY / "infra" / folder) for folder in ("", "airflow", "mlflow", "postgres")
]

from accounts import AccountError  # noqa: E402 - infra is no package
from databases import DatabaseError, DatabaseServer  # noqa: E402
from local_servers import DATABASE_VARIABLE, LocalServers, parse_users  # noqa: E402
from processes import (  # noqa: E402
    Server,
    ServerError,
    answer_of,
    check_alive,
    free_port,
    stop,
    wait_until_ready,
)
from settings import LOCALHOST, PASSWORD_FILE, USER  # noqa: E402

READY_TIMEOUT_S = 600  # of a busy machine; a server that ended is seen at once
STOP_GRACE_S = 20


@click.command(
    epilog="\b\nExamples:\n"
    "  python infra/up.py --home nightmill-home\n"
    "  python infra/up.py --home nightmill-home --users ann:viewer,ben:user,cleo:op\n"
    "  NIGHTMILL_DATABASE=postgresql://nightmill:PASSWORD@localhost:5432 "
    "python infra/up.py --home nightmill-home\n"
)
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--mlflow-port", default=5000, envvar="NIGHTMILL_MLFLOW_PORT", show_default=True)
@click.option("--airflow-port", default=8080, envvar="NIGHTMILL_AIRFLOW_PORT", show_default=True)
@click.option(
    "--users",
    envvar="NIGHTMILL_USERS",
    help="NAME:ROLE,... beside the admin; roles are viewer, user, op and admin. With them MLflow "
    "asks for a login too.",
)
def main(*, home: Path, mlflow_port: int, airflow_port: int, users: str | None) -> None:
    """Start both servers, print where they are, stop them on Ctrl-C.

    Their metadata lie in SQLite in HOME, or on the PostgreSQL server that the variable
    NIGHTMILL_DATABASE names: postgresql://user:password@host:port. A busy port gives way to the
    next free one. Exit code 1 if a server does not come up or ends.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    servers: list[Server] = []
    try:
        local = _local_servers(home.resolve(), users=users)
        servers.append(local.start_mlflow(free_port(mlflow_port, host=LOCALHOST)))
        servers.append(local.start_airflow(airflow_port, mlflow=servers[0]))
        click.echo("starting MLflow and Airflow, about half a minute")
        wait_until_ready(servers[:1], timeout_s=READY_TIMEOUT_S, is_ready=is_ready)
        # Before Airflow is up: its first job may need the service account.
        local.make_accounts(_address(servers[0]))
        wait_until_ready(servers, timeout_s=READY_TIMEOUT_S, is_ready=is_ready)
        click.echo(welcome(local, servers))
        while True:
            check_alive(servers)
            time.sleep(1)
    except (ServerError, DatabaseError, AccountError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("stopping")
    finally:
        # A second Ctrl-C must not leave half of it running.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop(servers, grace_s=STOP_GRACE_S)
    click.echo("stopped")


def welcome(local: LocalServers, servers: list[Server]) -> str:
    """Where to go, as whom, and how to end it."""
    mlflow, airflow = (_address(server) for server in servers)
    people = "".join(
        f"           user {name} ({role}), password {local.password(name)}\n"
        for name, role in local.users.items()
    )
    lines = (
        f"\n  Airflow  {airflow}   user {USER}, password {_password(local.home)}\n{people}"
        f"  MLflow   {mlflow}{'   the same users' if local.users else ''}\n"
        f"  Logs     {local.home / 'logs'}\n\n"
    )
    return lines + "  DAGs start paused: switch on what shall run. Ctrl-C stops everything.\n"


def is_ready(server: Server) -> bool:
    """Whether a server answers, and where the answer lists its parts, all of them are well."""
    answer = answer_of(server.health)
    if answer is None or not answer.startswith(b"{"):
        return answer is not None
    return all(part["status"] == "healthy" for part in json.loads(answer).values())


def _local_servers(home: Path, *, users: str | None) -> LocalServers:
    try:
        people = parse_users(users or "")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    # No option: with its password it would stand in every list of processes.
    database = os.environ.get(DATABASE_VARIABLE)
    server = DatabaseServer.parse(database) if database else None
    if server is not None:
        server.check()
    return LocalServers(home, repository=REPOSITORY, database=server, users=people)


def _address(server: Server) -> str:
    return f"http://{server.health.split('/')[2]}"


def _password(home: Path) -> str:
    path = home / "airflow" / PASSWORD_FILE
    try:
        return str(json.loads(path.read_text())[USER])
    except (OSError, ValueError, KeyError):
        return f"in {path}"


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
