"""A person retrains, approves and finds the new champion, by clicking alone."""

from __future__ import annotations

import threading
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(2400)]

RUN_LIMIT_S = 1200  # training on a machine that does other things beside it
REASON = "good numbers on deliveries"


def trigger(screen, stand):
    """Fills the form of `retrain` and sends it; the run's id."""
    page = screen.page
    page.goto(f"{stand.airflow}/dags/retrain")
    page.get_by_role("button", name="Trigger").first.click()
    screen.field("task").locator("input[role=combobox]").fill("reviews")
    page.keyboard.press("Enter")
    screen.field("epochs").fill("5")
    screen.shoot("02-retrain-form")
    button = page.get_by_role("dialog").get_by_role("button", name="Trigger", exact=True)
    with page.expect_response(is_new_run) as response:
        button.click()
    assert response.value.ok, response.value.text()
    return response.value.json()["dag_run_id"]


def is_new_run(response):
    return response.request.method == "POST" and response.url.endswith("/dagRuns")


def wait_for(screen, run, task, state):
    """Returns when a task has a state; a failed one ends the test with what its log says."""
    screen.page.goto("about:blank")  # a page that shows a run asks for it all the time
    deadline = time.monotonic() + RUN_LIMIT_S
    while (found := states(screen, run)).get(task) != state:
        lost = [name for name, got in found.items() if got == "failed"]
        assert not lost, log_of(screen, run, lost[0])[-4000:]
        assert time.monotonic() < deadline, found
        threading.Event().wait(1)


def states(screen, run):
    """State of each task of a run."""
    answer = screen.answer(f"{run}/taskInstances")
    return {task["task_id"]: task["state"] for task in answer["task_instances"]}


def log_of(screen, run, task):
    answer = screen.page.request.get(f"{run}/taskInstances/{task}/logs/1?full_content=true")
    return answer.text()


def look_at_log(screen, address, text, station):
    """Opens a task's log and scrolls to a line of it."""
    screen.page.goto(address)
    screen.page.get_by_text(text).last.scroll_into_view_if_needed()
    screen.shoot(station)


def approve(screen, stand):
    """Opens what waits for a person, reads the evidence, gives a reason and approves."""
    page = screen.page
    page.goto(f"{stand.airflow}/required_actions")
    link = page.get_by_role("link", name="Promote reviews version 1")
    link.wait_for()
    screen.shoot("05-required-actions")
    link.click()
    figures = page.get_by_role("table").filter(has_text="accuracy")
    figures.first.wait_for()
    assert "sentiment" in figures.first.inner_text()
    screen.shoot("06-evidence")
    page.locator("#element_reason").fill(REASON)
    screen.shoot("07-decision")
    page.get_by_role("button", name="Approve", exact=True).click()


def champion_of(screen, stand):
    """What MLflow's own pages say of the model's first version, after its alias is shown."""
    page = screen.page
    page.goto(f"{stand.mlflow}/#/models/reviews")
    page.get_by_text("champion").first.wait_for()
    screen.shoot("09-model")
    page.goto(f"{stand.mlflow}/#/models/reviews/versions/1")
    page.get_by_text(REASON).first.wait_for()
    screen.shoot("10-version")
    return page.locator("body").inner_text()


def test_person_retrains_approves_and_finds_the_champion(screen, stand):
    screen.log_in(stand)
    run_id = trigger(screen, stand)
    run = f"{stand.airflow}/api/v2/dags/retrain/dagRuns/{run_id}"
    shown = f"{stand.airflow}/dags/retrain/runs/{run_id}"

    wait_for(screen, run, "approve", "awaiting_input")
    look_at_log(screen, f"{shown}/tasks/finetune", "epoch 5", "03-training-log")
    look_at_log(screen, f"{shown}/tasks/bundle", "gate", "04-gates-log")
    approve(screen, stand)

    wait_for(screen, run, "promote", "success")
    screen.page.goto(shown)
    screen.page.get_by_text("promote").first.wait_for()
    screen.shoot("08-promoted")
    shown = champion_of(screen, stand)
    assert "champion" in shown
    assert "nightmill.approver" in shown
    assert REASON in shown
