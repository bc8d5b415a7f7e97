"""What follows from a person's answer, or from nobody having been asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

APPROVE, REJECT = "Approve", "Reject"  # as Airflow's ApprovalOperator says them
STARTER = "airflow"  # of a run that no user of Airflow has started


class UndecidedError(Exception):
    """Nobody has decided about this very version."""


@dataclass(frozen=True)
class Decision:
    """The task that comes next, and its job's arguments."""

    task_id: str
    arguments: list[str]


@dataclass(frozen=True)
class Answer:
    """What Airflow kept of an approval: the option, who chose it and why, which version it was on.

    `person` is empty where the time was over before anybody answered.
    """

    option: str
    person: str
    reason: str
    version: str

    @classmethod
    def of(cls, answer: Mapping[str, Any] | None, *, version: Any) -> Answer:
        """From the operator's XCom, which is None where it was marked as done by hand."""
        answer = answer or {}
        chosen = answer.get("chosen_options") or [""]
        reason = (answer.get("params_input") or {}).get("reason") or ""
        person = _name_of(answer.get("responded_by_user"))
        return cls(str(chosen[0]), person, str(reason).strip(), str(version or ""))


def unasked(*, task: str, version: str, run_id: str, starter: str | None) -> Decision:
    """A promotion that nobody was to be asked about; who started the run answers for it."""
    reason = f"no approval asked, {run_id}"
    return _promotion(task, version, approver=starter or STARTER, reason=reason)


def decision_on(answer: Answer, *, task: str, version: str, run_id: str, hours: int) -> Decision:
    """What a person's answer, or its absence for `hours`, asks for.

    Raises:
        UndecidedError: there is no answer, or it was about another version. Neither a promotion
            nor a rejection may go out in anybody's name then, however the run was cleared.
    """
    if answer.option not in (APPROVE, REJECT):
        raise UndecidedError(
            f"nobody answered about version {version}; clear 'approve' to ask again"
        )
    if answer.version != version:
        raise UndecidedError(
            f"the answer was about version {answer.version or 'unknown'}, registered now is "
            f"version {version}; clear 'approve' to ask again"
        )
    if answer.option == APPROVE:
        if not answer.person:
            raise UndecidedError(
                f"version {version} is approved by nobody; clear 'approve' to ask a person"
            )
        reason = answer.reason or f"approved, {run_id}"
        return _promotion(task, version, approver=answer.person, reason=reason)
    told = "rejected" if answer.person else f"no answer within {hours} h"
    reason = answer.reason or f"{told}, {run_id}"
    # The job takes an empty name for nobody's.
    arguments = _arguments(task, version, approver=answer.person, reason=reason)
    return Decision("reject", ["reject", *arguments])


def _promotion(task: str, version: str, *, approver: str, reason: str) -> Decision:
    return Decision("promote", _arguments(task, version, approver=approver, reason=reason))


def _arguments(task: str, version: str, *, approver: str, reason: str) -> list[str]:
    return [task, "--version", version, "--approver", approver, "--reason", reason]


def _name_of(user: Any) -> str:
    name = user.get("name") if isinstance(user, dict) else getattr(user, "name", None)
    return str(name or "")
