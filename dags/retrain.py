"""Fine-tunes, bundles and registers a model; a person approves before it becomes the champion."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from dags.retraining.approval import ASKED_VERSION, PromotionApproval
from dags.retraining.decision import Answer, UndecidedError, decision_on, unasked
from dags.retraining.evidence import evidence
from dags.retraining.form import DEFAULT_APPROVAL_HOURS, form
from dags.retraining.plan import plan_of
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import task_names

ARGUMENTS = "arguments"
MAX_ACTIVE_RUNS = 16
DOC = """
### Retrain a model

`plan` → `finetune` → `bundle` → `register` → a person decides → `promote` or `reject`

Press *Trigger*, choose the task, leave the rest as it is for the task file's own recipe. Settings
that do not go together fail at `plan`, within seconds; a model that fails a gate stops at
`bundle`, whose log has the table of gates.

At `approve` the run waits, holding no worker, until somebody answers under **Required actions**,
with the new model and the champion side by side in front of them. Approving makes the new version
the champion. Rejecting keeps it as challenger, with the reason in the registry's history. So does
no answer in time, in nobody's name: silence never promotes.

Clear a failed step to go on from there: each finds the work of the steps before it. Clear
`approve` to ask again.
"""


@task(task_id="plan", multiple_outputs=True)
def make_plan() -> dict[str, list[str]]:
    """Arguments of each job of this run; settings that do not go together end it here."""
    context = get_current_context()
    try:
        return plan_of(context["params"], context["dag_run"].run_id, home=Home.find())
    except ConfigError as error:
        raise AirflowFailException(str(error)) from None


@task.branch(task_id="approval_asked")
def choose_path() -> str:
    """The task that comes next: a person's answer, or the decision without one."""
    return "approve" if get_current_context()["params"]["approval"] else "decide"


@task.branch(task_id="decide", trigger_rule="none_failed_min_one_success")
def decide(registered: dict[str, Any]) -> str:
    """The task that comes next, `promote` or `reject`; its arguments are left beside.

    It looks at the answer again, because promoting against a person's answer is the one thing that
    must not happen however the run was cleared.
    """
    context = get_current_context()
    run, params, ti = context["dag_run"], context["params"], context["ti"]
    about = {"task": params["task"], "version": str(registered["version"]), "run_id": run.run_id}
    if params["approval"]:
        answer = Answer.of(
            ti.xcom_pull(task_ids="approve"),
            version=ti.xcom_pull(task_ids="approve", key=ASKED_VERSION),
        )
        try:
            decision = decision_on(answer, hours=params["approval_hours"], **about)
        except UndecidedError as error:
            raise AirflowSkipException(str(error)) from None
    else:
        decision = unasked(starter=run.triggering_user_name, **about)
    ti.xcom_push(key=ARGUMENTS, value=decision.arguments)
    return decision.task_id


def ask_person() -> PromotionApproval:
    """The task that waits for a person; silence is a rejection."""
    return PromotionApproval(
        task_id="approve",
        subject="Promote {{ params.task }} version "
        "{{ ti.xcom_pull(task_ids='register')['version'] }} to champion?",
        body="{{ evidence(ti.xcom_pull(task_ids='bundle'), ti.xcom_pull(task_ids='register'), "
        "params) }}",
        params={
            "reason": Param(
                "",
                type=["string", "null"],
                title="Reason",
                description="Kept in the registry's history.",
            )
        },
        defaults=PromotionApproval.REJECT,
        # Of a run that says nothing else.
        response_timeout=timedelta(hours=DEFAULT_APPROVAL_HOURS),
    )


@dag(
    dag_id="retrain",
    description="Make a model and, once a person approves, let it score.",
    doc_md=DOC,
    schedule=None,
    catchup=False,
    # A run that waits for a person must not keep other tasks from being retrained; those of its
    # steps that fill a machine are one at a time all the same.
    max_active_runs=MAX_ACTIVE_RUNS,
    # Without a schedule an unpaused DAG starts nothing by itself, and a paused one would leave
    # the run that somebody triggered waiting in the queue.
    is_paused_upon_creation=False,
    params=form(task_names(Home.find())),
    user_defined_macros={"evidence": evidence},
    tags=["nightmill", "training"],
)
def retrain() -> None:
    """The chain from labelled rows to the champion."""
    plan = make_plan()
    steps = {
        job: JobOperator(
            task_id=job, job=job, arguments=plan[job], max_active_tis_per_dag=1, **RETRY_ARGUMENTS
        )
        for job in ("finetune", "bundle", "register")
    }
    path, decision = choose_path(), decide(steps["register"].output)
    outcomes = [
        JobOperator(task_id=task_id, job=job, arguments=decision[ARGUMENTS], **RETRY_ARGUMENTS)
        for task_id, job in (("promote", "promote"), ("reject", "models"))
    ]
    steps["finetune"] >> steps["bundle"] >> steps["register"] >> path
    path >> ask_person() >> decision
    path >> decision
    decision >> outcomes


retrain()
