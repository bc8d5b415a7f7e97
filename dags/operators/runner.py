"""Runs one command to its end: where it runs is the only thing that differs between runners."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ERROR_LINE = re.compile(r"(?:^|\s)(?:ERROR|CRITICAL|Error:)\s+(?P<message>\S.*)")
_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit code (negative: the signal that killed it), its last error."""

    exit_code: int
    last_error: str


class Runner(Protocol):
    """Runs a command somewhere. `on_line` gets each line of its output as it comes."""

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> Outcome:
        """Waits for the command's end."""
        ...

    def stop(self) -> None:
        """Ends the command with all that it started; does nothing where none runs."""
        ...


class SubprocessRunner:
    """Runs a command on this machine, in a process group of its own.

    The grace between SIGTERM and SIGKILL stays under the 5 s after which Airflow's supervisor
    kills the task process itself, and with it the one who would send the second signal.
    """

    def __init__(self, *, grace_s: float = 3.0) -> None:
        self._grace_s = grace_s
        self._process: subprocess.Popen[str] | None = None

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> Outcome:
        """Waits for the command's end; no process of its group outlives it."""
        last_line = last_error = ""
        with _start(command, environment) as process:
            self._process = process
            sweeper = threading.Thread(target=self._sweep, args=(process,), daemon=True)
            sweeper.start()
            try:
                for printed in process.stdout or ():
                    line = mask_secrets(printed)  # of libraries too, which print past our log
                    on_line(line.rstrip())
                    last_line = line.strip() or last_line
                    last_error = error_in(line) or last_error
                sweeper.join()
            except BaseException:
                self.stop()
                raise
        self._process = None
        return Outcome(process.returncode, last_error or last_line)

    def stop(self) -> None:
        """Ends the process group: SIGTERM, and after the grace SIGKILL."""
        if self._process is not None:
            end_group(self._process.pid, grace_s=self._grace_s)

    def _sweep(self, process: subprocess.Popen[str]) -> None:
        # A grandchild that outlives the job holds its output open: without this, reading that
        # output would never end.
        process.wait()
        end_group(process.pid, grace_s=self._grace_s)


def end_group(group: int, *, grace_s: float) -> None:
    """Ends all processes of a group: SIGTERM, and to those left after `grace_s` SIGKILL."""
    deadline = time.monotonic() + grace_s
    lives = _signal_group(group, signal.SIGTERM)
    while lives and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        lives = _signal_group(group, 0)
    if lives:
        _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Whether the group still had a process to signal."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - it makes one system call and takes no lock
    )


def _die_with_parent() -> None:
    # A task process that is killed outright cannot stop its job, and the retry would run beside
    # it. Linux can send the signal itself; elsewhere that gap remains.
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def error_in(line: str) -> str:
    """What a log line of severity ERROR says; empty for any other line."""
    match = _ERROR_LINE.search(line)
    return match["message"].strip() if match else ""
