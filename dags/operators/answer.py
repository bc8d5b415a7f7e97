"""What a job's end means for its task: a result, another try, or neither."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.operators.runner import Outcome
from schemas.errors import RETRYABLE_EXIT_CODES
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from dags.operators.ray_cluster import RayJob

MAX_RESULT_BYTES = 16 * 1024
_SHELL_SIGNAL_BASE = 128  # a shell says by 128 + n that signal n killed its command
_LOOK_EVERY_S = 0.5


def check_outcome(job: str, outcome: Outcome) -> None:
    """Returns where a job ended well.

    Raises:
        AirflowException: it may succeed when it is tried again.
        AirflowFailException: trying again cannot help.
    """
    code = outcome.exit_code
    if code == 0:
        return
    ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    message = mask_secrets(f"job {job!r}: {outcome.last_error or 'no output'} ({ending})")
    if code < 0 or code in RETRYABLE_EXIT_CODES:
        raise AirflowException(message)
    raise AirflowFailException(message)


def outcome_on_ray(job: str, found: RayJob) -> Outcome:
    """How a job's process ended on a cluster.

    Raises:
        AirflowException: it was stopped there, or the cluster lost it: another try may succeed.
    """
    if found.status == "SUCCEEDED":
        return Outcome(0, "")
    if found.status == "STOPPED":
        raise AirflowException(f"job {job!r}: it was stopped on the Ray cluster")
    if found.exit_code is None:
        raise AirflowException(f"job {job!r}: Ray did not run it to its end: {found.error}")
    by_signal = found.exit_code > _SHELL_SIGNAL_BASE
    code = _SHELL_SIGNAL_BASE - found.exit_code if by_signal else found.exit_code
    return Outcome(code, found.error)


def read_result(job: str, path: Path, *, wait_s: float = 0) -> dict[str, Any]:
    """A job's small result; a file that another machine wrote is waited for.

    Raises:
        AirflowFailException: it is missing, too large, or no JSON object.
    """
    deadline = time.monotonic() + wait_s
    while not path.is_file():
        if time.monotonic() >= deadline:
            where = f"; is {path.parent} on a folder that the cluster shares?" if wait_s else ""
            raise AirflowFailException(f"job {job!r} ended well but wrote no result file{where}")
        time.sleep(_LOOK_EVERY_S)
    size = path.stat().st_size
    if size > MAX_RESULT_BYTES:
        raise AirflowFailException(
            f"job {job!r}: its result has {size} bytes, at most {MAX_RESULT_BYTES} fit an "
            "XCom; let it return paths and counts only"
        )
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise AirflowFailException(f"job {job!r}: its result is no JSON") from error
    if not isinstance(value, dict):
        raise AirflowFailException(
            f"job {job!r}: expected an object as its result, got {type(value).__name__}"
        )
    return value
