"""What people are told when a run fails or is late: what happened, and what to do now."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from dags.nightly.dates import dates_of
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_ENDING = re.compile(r"\((?:exit code (?P<code>\d+)|killed by signal (?P<signal>\d+))\)")
_MAX_ERROR_CHARS = 500
_TIMEOUT_S = 10.0
# Exit code: what it means, and what a person does about it.
MEANINGS: dict[str, tuple[str, str]] = {
    "1": ("a bug in Nightmill", "report it with this task's log"),
    "2": ("a setting is wrong", "mend the task file or the run's parameters, then clear the task"),
    "3": (
        "the data break their contract",
        "tell the owner of the data; once they are mended, clear the task",
    ),
    "4": (
        "a model is missing, damaged or failed a gate",
        "look at the model's page, mend or roll back, then clear the task",
    ),
    "5": ("some shards failed, the others are kept", "clear the task: only what is left is done"),
    "75": (
        "passing trouble that did not pass",
        "see that storage and cluster are there, then clear the task",
    ),
}
_KILLED = (
    "the job was killed",
    "see whether memory ran out (score.max_worker_mib, score.workers), then clear the task",
)
_UNKNOWN = ("the task failed outside of the job", "read the task's log, then clear the task")


def tell_failure(
    context: Mapping[str, Any], *, timezone: str = "UTC", to: str | None = None
) -> None:
    """Airflow's callback for a task that has failed for good."""
    message = failure_message(context, timezone=timezone)
    notify(message, event="failure", dag_id=context["ti"].dag_id, to=to)


def tell_deadline(
    *, dag_id: str, minutes: float, to: str | None = None, context: Mapping[str, Any] | None = None
) -> None:
    """Airflow's callback for a run that is not done in time."""
    run = dict((context or {}).get("dag_run") or {})
    run_id = run.get("dag_run_id") or run.get("run_id") or "unknown"
    message = (
        f"DAG {dag_id}, run {run_id}: not done {minutes:g} minutes after it was queued "
        "(schedule.deadline_minutes)\nwhat to do: look in the run's grid which task runs or waits; "
        "one that is queued waits for a slot of its pool"
    )
    notify(message, event="deadline", dag_id=dag_id, to=to)


def failure_message(context: Mapping[str, Any], *, timezone: str = "UTC") -> str:
    """Which task and date, what the ending means, the first error line, what to do, how to repeat.

    No word of it comes from a record: the jobs' own messages have none.
    """
    instance, run = context["ti"], context["dag_run"]
    error = re.sub(r"\s+", " ", str(context.get("exception") or "no message"))
    (meaning, mend), days = _meaning(error), _dates_told(context, timezone)
    lines = [
        f"DAG {instance.dag_id}, task {instance.task_id}, {days}: {meaning}",
        f"error: {error[:_MAX_ERROR_CHARS]}",
        f"what to do: {mend}",
    ]
    if command := _command_of(context.get("task")):
        lines.append(f"by hand: {command}")
    lines.append(f"run: {run.run_id}, try {instance.try_number}")
    return "\n".join(lines)


def notify(message: str, *, event: str, dag_id: str, to: str | None) -> None:
    """Tells people: always in the log, and as JSON at the address of the connection `to`.

    A notice that does not arrive is told in the log; nothing fails by it. Neither the address nor
    its credentials are written anywhere.
    """
    log.error("%s", message)
    if to is None:
        return
    try:
        _post(to, {"event": event, "dag_id": dag_id, "text": message})
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide what is told
        log.warning(
            "the notice was not delivered by connection %r: %s; see that it is there and has a "
            "host", to, type(error).__name__,
        )  # fmt: skip


def _post(connection_id: str, notice: Mapping[str, str]) -> None:
    # At parse time nobody has use for these.
    import requests  # noqa: PLC0415
    from airflow.sdk import Connection  # noqa: PLC0415

    connection = Connection.get(connection_id)
    if not connection.host:
        raise ConfigError(f"connection {connection_id!r} has no host")
    # As Airflow's own HTTP connections are read: `schema` is the scheme.
    scheme = connection.schema if connection.schema in ("http", "https") else connection.conn_type
    address = connection.host if "://" in connection.host else f"{scheme}://{connection.host}"
    if connection.port:
        address = f"{address}:{connection.port}"
    path = connection.extra_dejson.get("path", "")
    login = (connection.login, connection.password or "") if connection.login else None
    answer = requests.post(f"{address}{path}", json=notice, auth=login, timeout=_TIMEOUT_S)
    answer.raise_for_status()


def _meaning(error: str) -> tuple[str, str]:
    match = _ENDING.search(error)
    if match is None:
        return _UNKNOWN
    return _KILLED if match["signal"] else MEANINGS.get(match["code"], _UNKNOWN)


def _dates_told(context: Mapping[str, Any], timezone: str) -> str:
    try:
        days = dates_of(context, timezone=timezone)
    except ConfigError:
        return "no date"
    return f"date {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")


def _command_of(task: Any) -> str:
    """The command that repeats the task by hand; empty where it is no job."""
    job, arguments = getattr(task, "job", None), getattr(task, "arguments", None)
    if not job or not isinstance(arguments, list):
        return ""
    return f"nightmill {job} {' '.join(str(each) for each in arguments)}"
