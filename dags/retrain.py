"""Fine-tunes, bundles and registers a model; a person approves before it becomes the champion."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from dags.retraining.evidence import evidence
from dags.retraining.plan import AUTO, plan_of, promotion_arguments
from schemas.home import Home
from schemas.load import task_names

NO_APPROVER = "airflow"
TASKS = list(task_names(Home.find()))
DOC = """
### Retrain a model

`finetune` → `bundle` → `register` → a person approves → `promote`

Press *Trigger*, choose the task, leave the rest as it is for the task file's own recipe. A model
that fails a gate stops at `bundle`. At `approve` the run waits, holding no worker, until somebody
answers under **Required actions**; rejecting, or no answer within a day, leaves the champion as it
is. Clear a failed step to go on from there: each finds the work of the steps before it.
"""
PARAMS = {
    "task": Param(
        TASKS[0],
        type="string",
        enum=TASKS,
        title="Task",
        description="Whose model is made.",
        section="What",
    ),
    "backbone": Param(
        "",
        # Airflow's form takes an empty field of type "string" for a missing one and blocks the
        # button.
        type=["string", "null"],
        title="Backbone",
        description="hf:NAME, path:DIR or package:MODULE/DIR. Empty: the task's own.",
        section="Recipe",
    ),
    "epochs": Param(
        0,
        type="integer",
        minimum=0,
        maximum=50,
        title="Epochs",
        description="Passes over the labelled rows. 0: the recipe's choice.",
        section="Recipe",
    ),
    "seed": Param(
        0,
        type="integer",
        minimum=0,
        title="Seed",
        description="Makes a run repeatable. 0: the task's own.",
        section="Recipe",
    ),
    "precision": Param(
        AUTO,
        type="string",
        enum=[AUTO, "int8_static", "int8_dynamic", "fp32"],
        title="Precision",
        description="Only this variant is tried. auto: the first of the task's preference that "
        "passes the gates.",
        section="Recipe",
    ),
    "approval": Param(
        True,
        type="boolean",
        title="Ask a person",
        description="Somebody approves before the model becomes the champion.",
        section="Promotion",
    ),
}


@task(task_id="plan", multiple_outputs=True)
def make_plan() -> dict[str, list[str]]:
    """Arguments of each job of this run."""
    context = get_current_context()
    return plan_of(context["params"], context["dag_run"].run_id)


@task.branch(task_id="approval_asked")
def choose_path() -> str:
    """The task that comes next: a person's answer, or the decision without one."""
    return "approve" if get_current_context()["params"]["approval"] else "decide"


@task(task_id="decide", trigger_rule="none_failed_min_one_success")
def decide(registered: dict[str, Any]) -> list[str]:
    """Arguments of the promotion.

    A rejection has skipped this task already. It looks again, because promoting against a
    person's answer is the one thing that must not happen however the run was cleared.
    """
    context = get_current_context()
    run, params = context["dag_run"], context["params"]
    approver, reason = run.triggering_user_name or NO_APPROVER, f"no approval asked, {run.run_id}"
    if params["approval"]:
        answer = context["ti"].xcom_pull(task_ids="approve") or {}
        if answer.get("chosen_options") != [ApprovalOperator.APPROVE]:
            raise AirflowSkipException("nobody approved the promotion")
        approver = _name_of(answer.get("responded_by_user"))
        reason = (answer.get("params_input") or {}).get("reason") or f"approved, {run.run_id}"
    return promotion_arguments(
        task=params["task"], version=registered["version"], approver=approver, reason=reason
    )


def _name_of(user: Any) -> str:
    name = user.get("name") if isinstance(user, dict) else getattr(user, "name", None)
    return str(name or NO_APPROVER)


def ask_person() -> ApprovalOperator:
    """The task that waits for a person; silence is a rejection."""
    return ApprovalOperator(
        task_id="approve",
        subject="Promote {{ params.task }} version "
        "{{ ti.xcom_pull(task_ids='register')['version'] }} to champion?",
        body="{{ evidence(ti.xcom_pull(task_ids='bundle'), ti.xcom_pull(task_ids='register')) }}",
        params={
            "reason": Param(
                "",
                type=["string", "null"],
                title="Reason",
                description="Kept in the promotion history.",
            )
        },
        defaults=ApprovalOperator.REJECT,
        response_timeout=timedelta(days=1),
    )


@dag(
    dag_id="retrain",
    description="Make a model and, once a person approves, let it score.",
    doc_md=DOC,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    # Without a schedule an unpaused DAG starts nothing by itself, and a paused one would leave
    # the run that somebody triggered waiting in the queue.
    is_paused_upon_creation=False,
    params=PARAMS,
    user_defined_macros={"evidence": evidence},
    tags=["nightmill", "training"],
)
def retrain() -> None:
    """The chain from labelled rows to the champion."""
    plan = make_plan()
    steps = {
        job: JobOperator(task_id=job, job=job, arguments=plan[job], **RETRY_ARGUMENTS)
        for job in ("finetune", "bundle", "register")
    }
    decision = decide(steps["register"].output)
    promote = JobOperator(task_id="promote", job="promote", arguments=decision, **RETRY_ARGUMENTS)
    path = choose_path()
    steps["finetune"] >> steps["bundle"] >> steps["register"] >> path
    path >> ask_person() >> decision
    path >> decision
    decision >> promote


retrain()
