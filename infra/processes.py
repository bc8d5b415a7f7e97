"""Servers as process groups: started, watched, and stopped so that nothing stays behind."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

_POLL_S = 0.25
_PORTS_TRIED = 50


@dataclass(frozen=True)
class Server:
    """One server: its process, where it answers, and the file that has its output."""

    name: str
    process: subprocess.Popen[bytes]
    health: str
    log: Path


class ServerError(Exception):
    """A server ended or did not answer in time."""


def start(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    health: str,
    log: Path,
) -> Server:
    """Starts a server in a session of its own, so that Ctrl-C reaches only the one who stops it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(name, process, health, log)


def wait_until_ready(
    servers: Iterable[Server], *, timeout_s: float, is_ready: Callable[[Server], bool]
) -> None:
    """Returns when all servers answer.

    Raises:
        ServerError: one of them ended, or the time is over; the message names its log.
    """
    deadline = time.monotonic() + timeout_s
    waiting = list(servers)
    while waiting := [server for server in waiting if not is_ready(server)]:
        check_alive(waiting)
        if time.monotonic() > deadline:
            names = " and ".join(server.name for server in waiting)
            raise ServerError(f"{names} did not answer in {timeout_s:.0f} s; see {waiting[0].log}")
        time.sleep(_POLL_S)


def check_alive(servers: Iterable[Server]) -> None:
    """Nothing while all servers run.

    Raises:
        ServerError: one has ended.
    """
    for server in servers:
        if (code := server.process.poll()) is not None:
            raise ServerError(f"{server.name} ended with exit code {code}; see {server.log}")


def stop(servers: Iterable[Server], *, grace_s: float) -> None:
    """Ends the servers' groups and all their descendants: SIGTERM, after the grace SIGKILL.

    A parent that dies first leaves children that no group or tree leads to any more, so all of
    them are noted down before the first signal.
    """
    stopping = list(servers)
    family = [member for server in stopping for member in _family(server.process.pid)]
    for server in stopping:
        with suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=grace_s)
    for member in left:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(left, timeout=grace_s)
    for server in stopping:
        with suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()


def answer_of(url: str) -> bytes | None:
    """Body of a GET that is answered with 200, else nothing; no proxy stands before ourselves."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as response:
            return bytes(response.read()) if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None


def free_port(wanted: int, *, host: str, taken: Iterable[int] = ()) -> int:
    """The wanted port, or the next free one.

    Raises:
        ServerError: fifty ports in a row are busy.
    """
    avoid = set(taken)
    for port in range(wanted, wanted + _PORTS_TRIED):
        if port not in avoid and _is_free(port, host):
            return port
    raise ServerError(f"ports {wanted} to {wanted + _PORTS_TRIED - 1} are busy; name another one")


def _is_free(port: int, host: str) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As servers bind: a port that only waits for its last packets counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return False
    return True


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
