"""Runs that a verdict asks for, each with an id of its own that never starts it twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dags.nightly.ids import airflow_id

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_CHARS = 480  # a reason to be read at a glance; the retrain form takes twice as many


def task_id_of(step: str, name: str) -> str:
    """Id of a step of one task."""
    return f"{step}_{airflow_id(name)}"


def claim_of(name: str, date: str) -> str:
    """The name under which a date's verdict asks for a retraining, and the id of that run."""
    return f"monitor__{airflow_id(name)}__{date}"


def retraining(name: str, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters of the retraining that a verdict has been granted, None where it has not."""
    asked = answer.get("retrain") or {}
    if not asked.get("granted"):
        return None
    return {"task": name, "reason": str(asked["reason"])[:REASON_CHARS]}


def rescoring(date: str, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Id and parameters of a run for each date whose input came after it was scored.

    A date is tried once by each day's run of the monitor: its id has both.
    """
    return [
        {"trigger_run_id": f"late__{changed}__seen_{date}", "conf": {"date": changed}}
        for changed in answer.get("changed") or ()
    ]
