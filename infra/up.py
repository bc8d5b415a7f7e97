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
sys.path[:0] = [str(REPOSITORY / "infra"), str(REPOSITORY / "infra" / "airflow")]

from processes import (  # noqa: E402 - infra is no package
    Server,
    ServerError,
    answer_of,
    check_alive,
    free_port,
    start,
    stop,
    wait_until_ready,
)
from settings import (  # noqa: E402
    LOCALHOST,
    PASSWORD_FILE,
    USER,
    airflow_environment,
    server_environment,
)

READY_TIMEOUT_S = 240
STOP_GRACE_S = 20
_WORKER_LOG_PORT = 8793
_TRIGGER_LOG_PORT = 8794


@click.command(epilog="\b\nExample:\n  python infra/up.py --home nightmill-home\n")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--mlflow-port", default=5000, envvar="NIGHTMILL_MLFLOW_PORT", show_default=True)
@click.option("--airflow-port", default=8080, envvar="NIGHTMILL_AIRFLOW_PORT", show_default=True)
def main(*, home: Path, mlflow_port: int, airflow_port: int) -> None:
    """Start both servers, print where they are, stop them on Ctrl-C.

    A busy port gives way to the next free one. Exit code 1 if a server does not come up or ends.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    servers: list[Server] = []
    try:
        home = home.resolve()
        servers.append(start_mlflow(home, free_port(mlflow_port, host=LOCALHOST)))
        servers.append(start_airflow(home, airflow_port, mlflow=servers[0]))
        click.echo("starting MLflow and Airflow, about half a minute")
        wait_until_ready(servers, timeout_s=READY_TIMEOUT_S, is_ready=is_ready)
        click.echo(welcome(home, servers))
        while True:
            check_alive(servers)
            time.sleep(1)
    except ServerError as error:
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


def start_mlflow(home: Path, port: int) -> Server:
    """The tracking server and registry, on SQLite and a folder of the home."""
    home.mkdir(parents=True, exist_ok=True)
    places = {
        "--backend-store-uri": f"sqlite:///{home / 'mlflow.db'}",
        "--artifacts-destination": str(home / "mlartifacts"),
        "--host": LOCALHOST,
        "--port": str(port),
        "--workers": "1",
    }
    arguments = [word for option in places.items() for word in option]
    return start(
        "MLflow",
        [_program("mlflow"), "server", *arguments],
        environment={
            **_environment(),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            # Seven processes for evaluations by language models, of which there are none here.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        },
        health=f"http://{LOCALHOST}:{port}/health",
        log=home / "logs" / "mlflow.log",
    )


def start_airflow(home: Path, wanted_port: int, *, mlflow: Server) -> Server:
    """All of Airflow in one group; its jobs use the given tracking server."""
    address = mlflow.health.removesuffix("/health")
    taken = {int(address.rpartition(":")[2])}
    ports = []
    for wanted in (wanted_port, _WORKER_LOG_PORT, _TRIGGER_LOG_PORT):
        ports.append(free_port(wanted, host=LOCALHOST, taken=taken))
        taken.add(ports[-1])
    settings = airflow_environment(home, repository=REPOSITORY) | server_environment(
        port=ports[0], worker_log_port=ports[1], trigger_log_port=ports[2]
    )
    (home / "airflow").mkdir(parents=True, exist_ok=True)
    return start(
        "Airflow",
        [_program("airflow"), "standalone"],
        environment={**_environment(), **settings, "MLFLOW_TRACKING_URI": address},
        health=f"http://{LOCALHOST}:{ports[0]}/api/v2/monitor/health",
        log=home / "logs" / "airflow.log",
    )


def welcome(home: Path, servers: list[Server]) -> str:
    """Where to go, as whom, and how to end it."""
    mlflow, airflow = (f"http://{server.health.split('/')[2]}" for server in servers)
    return (
        f"\n  Airflow  {airflow}   user {USER}, password {_password(home)}\n"
        f"  MLflow   {mlflow}\n"
        f"  Logs     {home / 'logs'}\n\n"
        "  DAGs start paused: switch on what shall run. Ctrl-C stops everything.\n"
    )


def _password(home: Path) -> str:
    path = home / "airflow" / PASSWORD_FILE
    try:
        return str(json.loads(path.read_text())[USER])
    except (OSError, ValueError, KeyError):
        return f"in {path}"


def is_ready(server: Server) -> bool:
    """Whether a server answers, and where the answer lists its parts, all of them are well."""
    answer = answer_of(server.health)
    if answer is None or not answer.startswith(b"{"):
        return answer is not None
    return all(part["status"] == "healthy" for part in json.loads(answer).values())


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _environment() -> dict[str, str]:
    # Airflow starts its parts by the name `airflow`, so that has to be this environment's.
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {**os.environ, "PATH": os.pathsep.join(folders)}


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
