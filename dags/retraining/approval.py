"""The task that waits for a person."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

ASKED_VERSION = "asked_version"


class PromotionApproval(ApprovalOperator):  # type: ignore[misc]
    """Asks whether the registered version shall be the champion.

    As Airflow's own, but for three things: the run's form says how long it waits, it keeps which
    version it asked about, and a rejection does not skip what comes next, since that has a
    rejection to record.
    """

    def execute(self, context: Context) -> Any:
        """Asks, and waits without holding a worker."""
        self.response_timeout = timedelta(hours=context["params"]["approval_hours"])
        # Airflow fills in what the run was started with under the same name: why the run was
        # started is no reason to approve what it made.
        self.params["reason"] = ""
        registered = context["ti"].xcom_pull(task_ids="register")
        context["ti"].xcom_push(key=ASKED_VERSION, value=str(registered["version"]))
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """The answer: option, person, reason and time."""
        answer = HITLOperator.execute_complete(self, context, event)
        self.hitl_summary_extra["approved"] = answer["chosen_options"] == [self.APPROVE]
        return answer
