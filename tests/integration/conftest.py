"""A PostgreSQL server for the tests that need one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BINARIES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))


def as_postgres():
    """PostgreSQL refuses to run as root; anybody else runs it as himself."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


@contextmanager
def cluster(port):
    """A throw-away server on a port; the superuser is `postgres`, over a socket in its folder."""
    folder = Path(tempfile.mkdtemp(prefix="nightmill-postgres-", dir="/tmp"))
    if as_postgres():
        shutil.chown(folder, "postgres", "postgres")
    data, log = folder / "data", folder / "log"
    tool = {**as_postgres(), "check": True, "capture_output": True, "cwd": folder}
    initdb = ["--username", "postgres", "--auth-local", "trust", "--auth-host", "scram-sha-256"]
    settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        subprocess.run([BINARIES / "initdb", "-D", data, "-E", "UTF8", *initdb], **tool)
        subprocess.run([BINARIES / "pg_ctl", "-D", data, "-l", log, "-o", settings, "-w", "start"],
                       **{**tool, "capture_output": False})  # fmt: skip
        yield folder
    finally:
        subprocess.run([BINARIES / "pg_ctl", "-D", data, "-m", "immediate", "stop"],
                       **{**tool, "check": False})  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Postgres:
    """A running server. `folder` has the socket of its superuser."""

    folder: Path
    port: int
    # With what an address cannot hold as it is: everybody must get it decoded.
    password: str = "s3cret/of:the@database"  # noqa: S105

    @property
    def binaries(self):
        return BINARIES

    @property
    def address(self):
        return f"postgresql://nightmill:{quote(self.password, safe='')}@127.0.0.1:{self.port}"

    def sql(self, statement, database="postgres"):
        """What a query answers, as the superuser."""
        command = self.psql("-d", database, "-At", "-c", statement)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def psql(self, *arguments):
        place = ["-h", self.folder, "-p", str(self.port), "-U", "postgres"]
        return [BINARIES / "psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", *place, *arguments]

    def create(self):
        environment = {**os.environ, "NIGHTMILL_DATABASE_PASSWORD": self.password}
        script = (REPOSITORY / "infra" / "postgres" / "create.sql").read_bytes()
        subprocess.run(self.psql(), input=script, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="session")
def postgres():
    if not (BINARIES / "initdb").exists():
        pytest.skip("PostgreSQL's server is not installed: make debian")
    for driver in ("psycopg2", "asyncpg", "flask_wtf"):
        pytest.importorskip(driver, reason="the extra `production` is not installed")
    port = free_port()
    with cluster(port) as folder:
        server = Postgres(folder, port)
        server.create()
        server.create()  # a second run changes nothing
        yield server
