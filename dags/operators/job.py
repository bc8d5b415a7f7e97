"""The one operator that reaches the work: it runs a job by its command line."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator, Context, ResumableJobMixin
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.operators.answer import check_outcome, outcome_on_ray, read_result
from dags.operators.local_job import job_command, job_environment
from dags.operators.ray_address import RayAddress, find_address
from dags.operators.ray_cluster import ClusterAwayError, ClusterRefusesError, RayCluster, RayJob
from dags.operators.remote import ACTIVE, SUCCEEDED, RemoteJob
from dags.operators.runner import Runner, SubprocessRunner
from dags.operators.submission import Identity, RayOptions
from dags.operators.triggers import RayJobTrigger
from schemas.home import Home
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_LOG_CHARACTERS = 200_000  # of a deferred job's log, which comes as a whole at its end

# For tasks that run jobs: what may pass by itself is tried again, each time after a longer wait.
RETRY_ARGUMENTS: dict[str, Any] = {
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
}


class JobOperator(ResumableJobMixin, BaseOperator):  # type: ignore[misc]
    """Runs `python -m jobs JOB ARGUMENTS... --home HOME --result FILE` and returns its result.

    The job's exit code decides what Airflow does next: success, retry (shards failed, passing
    trouble, killed by a signal) or fail at once.

    With a Ray address the job runs on that cluster; a try that finds the job of an earlier one
    alive joins it, and one that finds it done takes its result.

    Args:
        job: name of the job, as `nightmill jobs` lists it.
        arguments: its command line without home and result; a template, or the list of strings
            that another task returned.
        python: interpreter that has the job's packages where no cluster runs it; by default
            `NIGHTMILL_PYTHON`, else the one that runs Airflow.
        runner: where the command runs without a cluster; by default a subprocess.
        ray_address: the cluster's job API, as `http://head:8265`, `connection:ID` of an Airflow
            connection, or `local` for this machine; by default `NIGHTMILL_RAY_ADDRESS`, else
            `local`. It is read when the task runs.
        ray: how the job runs on a cluster.
        deferrable: wait for the cluster in the triggerer, without a worker; by default Airflow's
            setting `[operators] default_deferrable`. On this machine it has no effect.
        **kwargs: what every operator takes.
    """

    template_fields: ClassVar[Sequence[str]] = ("arguments",)
    ui_color: ClassVar[str] = "#dbe9f6"
    external_id_key: ClassVar[str] = "ray_submission_id"

    def __init__(
        self,
        *,
        job: str,
        arguments: Any,
        python: str | None = None,
        runner: Runner | None = None,
        ray_address: str | None = None,
        ray: RayOptions | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.arguments = arguments
        self.python = python
        self.runner = runner
        self.ray_address = ray_address
        self.ray = ray or RayOptions()
        self.deferrable = _deferrable_by_default() if deferrable is None else deferrable
        self._address: RayAddress | None = None
        self._remote: RemoteJob | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """The job's small result, which becomes the XCom.

        Raises:
            AirflowException: the job may succeed when it is tried again.
            AirflowFailException: trying again cannot help.
        """
        if (address := find_address(self.ray_address)) is None:
            return self._run_here()
        self._join(address, context)
        with _as_airflow_errors(self.job):
            result: dict[str, Any] = self.execute_resumable(context)
        return result

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a job that the trigger has seen end."""
        address = find_address(self.ray_address)
        if address is None:
            raise AirflowException(
                f"job {self.job!r}: its task was deferred and the Ray address is gone since; set "
                "it again"
            )
        self._join(address, context)
        if "lost" in event:
            raise AirflowException(f"job {self.job!r}: {event['lost']}")
        if "refused" in event:
            raise AirflowFailException(f"job {self.job!r}: {event['refused']}")
        self._show_log(event["submission_id"])
        return self._answer(event["submission_id"], RayJob(**event["job"]))

    def on_kill(self) -> None:
        """Ends the job with all the processes it started."""
        if self.runner is not None:
            self.runner.stop()
        if self._remote is not None:
            self._remote.stop()

    def command(self, result: Path, *, python: str | None = None) -> list[str]:
        """The command line, once its arguments are rendered."""
        return job_command(self.job, self._rendered(), result, python=python or self.python)

    def submit_job(self, context: Context) -> str:
        """The id of the task's job on the cluster, which may have begun before."""
        submission_id = self.remote.submit()
        self.log.info("job %s on Ray at %s", submission_id, self.address.public)
        return submission_id

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Whether the job of an earlier try can be joined, has this task's result, or neither."""
        return self.remote.status(str(external_id))

    def is_job_active(self, status: str) -> bool:
        """Whether a job of this status can be joined."""
        return status == ACTIVE

    def is_job_succeeded(self, status: str) -> bool:
        """Whether a job of this status has this task's result."""
        return status == SUCCEEDED

    def poll_until_complete(self, external_id: Any, context: Context) -> dict[str, Any]:
        """Waits for the job's end here, or hands it to the triggerer.

        The result is returned, as Airflow asks for none where it has joined a job.
        """
        submission_id = str(external_id)
        if self.deferrable:
            self._defer(submission_id)
        ended = self.remote.follow(submission_id, self._show)
        return self._answer(submission_id, ended)

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:
        """The result that a job has left in the home."""
        path = self.remote.result_file(str(external_id))
        return read_result(self.job, path, wait_s=self.ray.shared_lag_s)

    @property
    def remote(self) -> RemoteJob:
        """The job on the cluster; there is one while a task runs that has a Ray address."""
        assert self._remote is not None, "only with a Ray address"  # noqa: S101 - by construction
        return self._remote

    @property
    def address(self) -> RayAddress:
        """The cluster, as `remote`."""
        assert self._address is not None, "only with a Ray address"  # noqa: S101 - by construction
        return self._address

    def _run_here(self) -> dict[str, Any]:
        self.runner = self.runner or SubprocessRunner()
        with tempfile.TemporaryDirectory(prefix="nightmill-") as folder:
            result = Path(folder) / "result.json"
            command = self.command(result)
            self.log.info("running %s", mask_secrets(" ".join(command)))
            outcome = self.runner.run(command, environment=job_environment(), on_line=self._show)
            check_outcome(self.job, outcome)
            return read_result(self.job, result)

    def _join(self, address: RayAddress, context: Context) -> None:
        home = Home.find()
        self._address = address
        self._remote = RemoteJob(
            RayCluster(address),
            identity=Identity.of(context, home),
            home=home,
            command=lambda result: self.command(result, python=self.ray.interpreter()),
            options=self.ray,
        )

    def _defer(self, submission_id: str) -> None:
        lease = self.remote.hold(submission_id)
        trigger = RayJobTrigger(
            address=self.address.for_trigger(),
            submission_id=submission_id,
            lease_file=str(lease.file),
            owner=lease.owner,
            lease_s=lease.lease_s,
            poll_s=self.ray.poll_s,
            away_s=self.ray.away_s,
        )
        self.defer(trigger=trigger, method_name="resume", timeout=self.execution_timeout)

    def _show_log(self, submission_id: str) -> None:
        try:
            text = RayCluster(self.address).logs(submission_id)
        except (ClusterAwayError, ClusterRefusesError) as error:
            self.log.warning("%s", error)
            return
        for line in text[-MAX_LOG_CHARACTERS:].splitlines():
            self._show(line)

    def _show(self, line: str) -> None:
        # A cluster's nodes may know other secrets than this process; what both know is masked.
        self.log.info("%s", mask_secrets(line))

    def _answer(self, submission_id: str, ended: RayJob) -> dict[str, Any]:
        check_outcome(self.job, outcome_on_ray(self.job, ended))
        path = self.remote.result_file(submission_id)
        return read_result(self.job, path, wait_s=self.ray.shared_lag_s)

    def _rendered(self) -> list[str]:
        arguments = self.arguments
        if isinstance(arguments, list) and all(isinstance(value, str) for value in arguments):
            return arguments
        raise AirflowFailException(
            f"job {self.job!r}: expected its arguments as a list of strings, got "
            f"{type(arguments).__name__}; mend the DAG"
        )


def _deferrable_by_default() -> bool:
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


@contextmanager
def _as_airflow_errors(job: str) -> Iterator[None]:
    try:
        yield
    except ClusterAwayError as error:
        raise AirflowException(f"job {job!r}: {error}") from error
    except ClusterRefusesError as error:
        raise AirflowFailException(f"job {job!r}: {error}") from error
