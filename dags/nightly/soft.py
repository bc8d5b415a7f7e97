"""Steps that look at a night and may not fail it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from dags.operators.job import JobOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Context


class SoftJobOperator(JobOperator):
    """A job whose failure is told and skipped: what it looks at is published all the same."""

    def execute(self, context: Context) -> dict[str, Any]:
        """The job's result.

        Raises:
            AirflowSkipException: the job has failed.
        """
        with self._skipping():
            return super().execute(context)

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a job that was waited for without a worker.

        Raises:
            AirflowSkipException: the job has failed.
        """
        with self._skipping():
            return super().resume(context, event)

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except AirflowSkipException:
            raise
        except (AirflowException, AirflowFailException) as error:
            self.log.error("%s", error)
            raise AirflowSkipException(f"{error}; the night is published all the same") from error
