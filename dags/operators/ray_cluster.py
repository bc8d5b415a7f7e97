"""Ray's job API: the five calls that are needed, and errors that say whether to try again."""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from dags.operators.runner import error_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from dags.operators.ray_address import RayAddress

GENERATION = "nightmill_generation"  # a job's metadata: which clearing of the task it is of
REQUEST_TIMEOUT_S = 10.0
# Airflow's supervisor kills a task process 5 s after it told it to end.
STOP_TIMEOUT_S = 3.0
MAX_ERROR_CHARACTERS = 1000
# Ray's client follows them whatever address it is given.
_OVERRULING_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


class ClusterAwayError(Exception):
    """The cluster does not answer, or not as it should: later it may."""


class ClusterRefusesError(Exception):
    """The cluster will not do this however often it is asked."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as Ray knows it. `exit_code` is None where Ray could not run it to its end."""

    status: str
    exit_code: int | None = None
    error: str = ""
    entrypoint: str = ""
    generation: str = ""

    @property
    def ended(self) -> bool:
        """Whether its status is the last one it will have."""
        return self.status in {"SUCCEEDED", "FAILED", "STOPPED"}


@dataclass(frozen=True, slots=True)
class Order:
    """What is submitted: a shell line, its environment, and what its process holds."""

    submission_id: str
    entrypoint: str
    environment: Mapping[str, str]
    metadata: Mapping[str, str]
    num_cpus: float = 0
    memory_bytes: int = 0
    resources: Mapping[str, float] | None = None


class Cluster(Protocol):
    """Takes jobs. Each call raises `ClusterAwayError` or `ClusterRefusesError`."""

    def submit(self, order: Order) -> None:
        """Hands a job over; an id that is taken is an error."""
        ...

    def look(self, submission_id: str) -> RayJob | None:
        """The job, or None where there is none of this id."""
        ...

    def stop(self, submission_id: str) -> None:
        """Asks a job to end; returns before it has."""
        ...

    def logs(self, submission_id: str) -> str:
        """All that the job has printed."""
        ...

    def tail(self, submission_id: str) -> AsyncIterator[str]:
        """What the job has printed and prints, from the beginning to its end."""
        ...


class RayCluster:
    """The cluster at an address; connects at the first call."""

    def __init__(self, address: RayAddress) -> None:
        self._address = address

    def submit(self, order: Order) -> None:
        """Hands a job over; an id that is taken is an error."""
        with self._translated(f"did not take job {order.submission_id}"):
            self._client.submit_job(
                submission_id=order.submission_id,
                entrypoint=order.entrypoint,
                runtime_env={"env_vars": dict(order.environment)},
                metadata=dict(order.metadata),
                entrypoint_num_cpus=order.num_cpus or None,
                entrypoint_memory=order.memory_bytes or None,
                entrypoint_resources=dict(order.resources) if order.resources else None,
            )

    def look(self, submission_id: str) -> RayJob | None:
        """The job, or None where there is none of this id."""
        with self._translated(f"says nothing of job {submission_id}"):
            try:
                found = self._client.get_job_info(submission_id)
            except _AnswerError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return None
                raise
        return _job_of(found)

    def stop(self, submission_id: str) -> None:
        """Asks a job to end; returns before it has."""
        with self._translated(f"did not stop job {submission_id}"):
            self._client.timeout_s = STOP_TIMEOUT_S
            try:
                self._client.stop_job(submission_id)
            finally:
                self._client.timeout_s = REQUEST_TIMEOUT_S

    def logs(self, submission_id: str) -> str:
        """All that the job has printed."""
        with self._translated(f"does not show the log of job {submission_id}"):
            return str(self._client.get_job_logs(submission_id))

    def tail(self, submission_id: str) -> AsyncIterator[str]:
        """What the job has printed and prints, from the beginning to its end."""
        with self._translated(f"does not show the log of job {submission_id}"):
            chunks: AsyncIterator[str] = self._client.tail_job_logs(submission_id)
            return chunks

    @functools.cached_property
    def _client(self) -> Any:
        for name in _OVERRULING_VARIABLES:
            if (value := os.environ.get(name)) and value.rstrip("/") != self._address.url:
                raise ClusterRefusesError(
                    f"{name} in Airflow's environment would send the job elsewhere than to Ray at "
                    f"{self._address.public}; unset it there"
                )
        return _client_class()(self._address.url, headers=self._address.headers)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        # Ray's own messages may name the address with its password, as would the chain of errors:
        # hence `from None`.
        try:
            yield
        except (ClusterAwayError, ClusterRefusesError):
            raise
        except Exception as error:  # noqa: BLE001 - Ray documents RuntimeError and raises many kinds
            kind = _kind_of(error)
            reason = str(error).replace(self._address.url, self._address.public)
            message = f"Ray at {self._address.public} {what}: {reason[:MAX_ERROR_CHARACTERS]}"
            raise kind(message) from None


class _AnswerError(RuntimeError):
    """An answer that is none of success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP status {status}: {text.strip()[-MAX_ERROR_CHARACTERS:]}")
        self.status = status


@functools.cache
def _client_class() -> type[Any]:
    """Ray's client with a limit on each request's time, and with errors that keep the status."""
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):  # type: ignore[misc]
        timeout_s = REQUEST_TIMEOUT_S

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, timeout=self.timeout_s, **options)

        def _raise_error(self, answer: Any) -> None:
            raise _AnswerError(answer.status_code, answer.text)

    return Client


def _kind_of(error: Exception) -> type[ClusterAwayError | ClusterRefusesError]:
    if isinstance(error, ImportError):
        return ClusterRefusesError
    from ray.exceptions import AuthenticationError

    status = getattr(error, "status", None)
    if isinstance(error, AuthenticationError):
        return ClusterRefusesError
    if status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ClusterRefusesError
    return ClusterAwayError


def _job_of(found: Any) -> RayJob:
    lines = [line.strip() for line in (found.message or "").splitlines() if line.strip()]
    errors = [error for line in lines if (error := error_in(line))]
    error = (errors or lines or [""])[-1]
    if found.driver_exit_code is None and found.error_type:
        error = f"{found.error_type}: {error}"
    return RayJob(
        status=str(found.status),
        exit_code=found.driver_exit_code,
        error=error[:MAX_ERROR_CHARACTERS],
        entrypoint=found.entrypoint,
        generation=(found.metadata or {}).get(GENERATION, ""),
    )
