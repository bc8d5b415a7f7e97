"""What an answer, or none, leads to: never a promotion that no person asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dags.retraining.decision import Answer, Decision, UndecidedError, decision_on, unasked

ADA = {"id": "1", "name": "ada"}


def answered(option, *, user=ADA, reason="better on returns", version="4", hours=24):
    said = {
        "chosen_options": [option],
        "params_input": {"reason": reason},
        "responded_by_user": user,
    }
    answer = Answer.of(said, version=version)
    return decision_on(answer, task="tickets", version="4", run_id="manual__1", hours=hours)


def arguments(approver, reason):
    return ["tickets", "--version", "4", "--approver", approver, "--reason", reason]


@pytest.mark.parametrize("user", [ADA, SimpleNamespace(id="1", name="ada")])
def test_an_approval_promotes_in_the_name_of_the_person(user):
    expected = Decision("promote", arguments("ada", "better on returns"))
    assert answered("Approve", user=user) == expected


@pytest.mark.parametrize("reason", ["", None, "  "])
def test_an_answer_without_a_reason_is_traced_to_its_run(reason):
    assert answered("Approve", reason=reason).arguments == arguments("ada", "approved, manual__1")
    rejected = arguments("ada", "rejected, manual__1")
    assert answered("Reject", reason=reason).arguments == ["reject", *rejected]


def test_a_rejection_keeps_the_person_and_the_reason():
    expected = Decision("reject", ["reject", *arguments("ada", "worse on returns")])
    assert answered("Reject", reason="worse on returns") == expected


def test_silence_is_recorded_as_what_it_is():
    silent = answered("Reject", user=None, reason="", hours=36)
    expected = arguments("", "no answer within 36 h, manual__1")
    assert silent == Decision("reject", ["reject", *expected])


def test_an_approval_by_nobody_promotes_nothing():
    with pytest.raises(UndecidedError, match="version 4 is approved by nobody; clear 'approve'"):
        answered("Approve", user=None)


@pytest.mark.parametrize("option", ["Approve", "Reject"])
@pytest.mark.parametrize(("version", "told"), [("3", "3"), (None, "unknown")])
def test_an_answer_about_another_version_is_none(option, version, told):
    with pytest.raises(UndecidedError, match=f"about version {told}, registered now is version 4"):
        answered(option, version=version)


@pytest.mark.parametrize("said", [None, {}, {"chosen_options": []}, {"chosen_options": ["Maybe"]}])
def test_without_an_answer_nothing_is_decided(said):
    with pytest.raises(UndecidedError, match="nobody answered about version 4"):
        decision_on(Answer.of(said, version="4"), task="tickets", version="4", run_id="r", hours=24)


@pytest.mark.parametrize(("starter", "approver"), [("grace", "grace"), (None, "airflow")])
def test_without_approval_the_one_who_pressed_the_button_answers_for_it(starter, approver):
    found = unasked(task="tickets", version="4", run_id="manual__1", starter=starter)
    assert found == Decision("promote", arguments(approver, "no approval asked, manual__1"))
