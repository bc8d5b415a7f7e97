"""Waits for the input of a night, holding no worker, and ends by the task's policy."""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)

from dags.operators.local_job import job_command, job_environment
from dags.operators.runner import Runner, SubprocessRunner
from schemas.errors import RETRYABLE_EXIT_CODES
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.schedule import LateConfig


class InputSensor(BaseSensorOperator):  # type: ignore[misc]
    """Asks `nightmill arrived` until the input of all dates is there, or the wait is over.

    It asks on the worker itself, also where the jobs run on a cluster. Between two looks the task
    is rescheduled and holds neither a worker nor a slot of a pool.

    Args:
        arguments: the task's name and its dates, as for any other job; a template.
        late: how long to wait, how often to look, and what follows in vain.
        runner: where the command runs; by default a subprocess.
        **kwargs: what every operator takes.
    """

    template_fields: ClassVar[Sequence[str]] = ("arguments",)
    ui_color: ClassVar[str] = "#e6f1f2"

    def __init__(
        self, *, arguments: Any, late: LateConfig, runner: Runner | None = None, **kwargs: Any
    ) -> None:
        super().__init__(
            mode="reschedule",
            poke_interval=timedelta(minutes=late.poll_minutes),
            timeout=timedelta(minutes=late.wait_minutes),
            **kwargs,
        )
        self.arguments = arguments
        self.then = late.then
        self.wait_minutes = late.wait_minutes
        self.runner = runner
        self.seen: dict[str, Any] = {}

    def execute(self, context: Context) -> dict[str, Any]:
        """What is missing, which is nothing unless the policy goes on with what is there.

        Raises:
            AirflowRescheduleException: not yet.
            AirflowFailException: the wait was in vain, and the policy is `fail`.
            AirflowSkipException: the same, and the policy is `skip`.
        """
        try:
            super().execute(context)
        except AirflowSensorTimeout:
            self._end_in_vain()
        return self.seen

    def poke(self, context: Context) -> bool:
        """Whether all dates have their input."""
        self.seen = self._ask()
        return not self.seen["missing"]

    def on_kill(self) -> None:
        """Ends the command that looks."""
        if self.runner is not None:
            self.runner.stop()

    def _end_in_vain(self) -> None:
        told = (
            f"no input for {', '.join(self.seen['missing'])} after {self.wait_minutes:g} minutes: "
            f"nothing matches {self.seen['location']}"
        )
        if self.then == "skip":
            raise AirflowSkipException(f"{told}; skipped, as schedule.late.then says")
        if self.then == "fail":
            raise AirflowFailException(
                f"{told}; ask the sender for it and clear this task, or set schedule.late"
            )
        self.log.warning("%s; going on with what is there", told)

    def _ask(self) -> dict[str, Any]:
        """The job's answer; trouble that may pass is told and counts as not there yet."""
        self.runner = self.runner or SubprocessRunner()
        with tempfile.TemporaryDirectory(prefix="nightmill-") as folder:
            result = Path(folder) / "result.json"
            outcome = self.runner.run(
                job_command("arrived", self.arguments, result),
                environment=job_environment(),
                on_line=lambda line: self.log.info("%s", mask_secrets(line)),
            )
            if outcome.exit_code == 0:
                answer: dict[str, Any] = json.loads(result.read_bytes())
                return answer
        told = mask_secrets(outcome.last_error)
        message = f"job 'arrived': {told} (exit code {outcome.exit_code})"
        if outcome.exit_code > 0 and outcome.exit_code not in RETRYABLE_EXIT_CODES:
            raise AirflowFailException(message)
        self.log.warning("%s", message)
        return {"missing": ["(not known)"], "location": told}
