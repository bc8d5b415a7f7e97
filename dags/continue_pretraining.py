"""Teaches a task's backbone the words of its unlabelled texts; `retrain` then starts from it."""

# Airflow is not followed by mypy (see pyproject.toml), so its decorators have no types.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import dag, get_current_context, task

from dags.form_fields import choice, number, text, yes_or_no
from dags.nightly.notices import tell_failure
from dags.operators.job import RETRY_ARGUMENTS, JobOperator
from dags.retraining.plan import run_name
from schemas.home import Home
from schemas.load import task_names
from schemas.pretrain import PretrainConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

OWN = "task's own"
OBJECTIVES = [OWN, *get_args(PretrainConfig.model_fields["objective"].annotation)]
TASKS = list(task_names(Home.find()))
DOC = """
### Continue pretraining

`pretrain` → `tell_address`

Press *Trigger*, choose the task, leave the rest as it is for the task file's own section
`pretrain`. The log of `pretrain` has held-out numbers before and after; `tell_address` ends with
the address of the new backbone: put it into the field *Backbone* of the DAG `retrain`, or into
`train.backbone` of the task file.

The same texts and settings are answered without training again. Clear a failed step to go on from
its last checkpoint.
"""
PARAMS = {
    "task": choice("Task", "Whose backbone learns.", section="What", options=TASKS),
    "texts": text(
        "Texts",
        "File, folder, glob or s3:// address of unlabelled texts. Empty: the task's corpus, or its "
        "input of all dates.",
        section="What",
        maxLength=1000,
    ),
    "objective": choice(
        "Objective",
        "mlm guesses hidden words; simcse pulls two views of a text together.",
        section="Recipe",
        options=OBJECTIVES,
    ),
    "epochs": number("Epochs", "Passes over the texts.", section="Recipe", maximum=100),
    "new_words": number(
        "New words",
        "How many words of the texts become pieces of their own.",
        section="Recipe",
        maximum=20_000,
        own=-1,
    ),
    "whole_words": yes_or_no(
        "Whole words",
        "Hide whole words rather than pieces. Off: the task's own.",
        section="Recipe",
    ),
    "seed": number("Seed", "Makes a run repeatable.", section="Recipe"),
}


def pretraining_arguments(params: Mapping[str, Any], run_id: str) -> list[str]:
    """Arguments of the job; a field that is left alone leaves the task's own setting."""
    objective, new_words = params["objective"], params["new_words"]
    settings = {
        "corpus": (params["texts"] or "").strip() or None,
        "objective": None if objective == OWN else objective,
        "epochs": params["epochs"] or None,
        "new_tokens": None if new_words < 0 else new_words,
        "whole_word": True if params["whole_words"] else None,
        "seed": params["seed"] or None,
    }
    overrides = [
        f"pretrain.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in settings.items()
        if value is not None
    ]
    return [params["task"], "--run", run_name(run_id), *overrides]


@task(task_id="plan")
def make_plan() -> list[str]:
    """Arguments of the job of this run."""
    context = get_current_context()
    return pretraining_arguments(context["params"], context["dag_run"].run_id)


@task(task_id="tell_address")
def tell_address(pretrained: dict[str, Any]) -> str:
    """The new backbone's address, which stands in the log and in the list of XComs."""
    address = str(pretrained["address"])
    log.info("backbone for the DAG retrain, or train.backbone of the task file: %s", address)
    return address


@dag(
    dag_id="continue_pretraining",
    description="Let a backbone learn from unlabelled texts before it is fine-tuned.",
    doc_md=DOC,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    # A run that somebody triggered must not wait in the queue of a paused DAG.
    is_paused_upon_creation=False,
    params=PARAMS,
    default_args={"on_failure_callback": tell_failure},
    tags=["nightmill", "training"],
)
def continue_pretraining() -> None:
    """From unlabelled texts to the address of a backbone."""
    job = JobOperator(task_id="pretrain", job="pretrain", arguments=make_plan(), **RETRY_ARGUMENTS)
    tell_address(job.output)


continue_pretraining()
