"""What follows from a verdict, and from the form of continued pretraining: without Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import ParamValidationError

from dags.continue_pretraining import OWN, PARAMS, pretraining_arguments
from dags.monitoring.actions import claim_of, rescoring, retraining, task_id_of
from dags.retraining.plan import run_name

DAGS = Path(__file__).resolve().parents[2] / "dags"


def test_granted_verdict_becomes_the_parameters_of_a_retraining():
    answer = {"retrain": {"granted": True, "reason": "worse " * 200}}
    params = retraining("tickets", answer)
    assert params["task"] == "tickets"
    assert (params["reason"][:5], len(params["reason"])) == ("worse", 480)


@pytest.mark.parametrize("answer", [{}, {"retrain": {"granted": False, "reason": "cool-down"}}])
def test_nothing_granted_nothing_started(answer):
    assert retraining("tickets", answer) is None


def test_each_changed_date_is_one_run_a_day():
    runs = rescoring("2026-11-28", {"changed": ["2026-11-26", "2026-11-27"]})
    assert runs == [
        {"trigger_run_id": "late__2026-11-26__seen_2026-11-28", "conf": {"date": "2026-11-26"}},
        {"trigger_run_id": "late__2026-11-27__seen_2026-11-28", "conf": {"date": "2026-11-27"}},
    ]
    assert rescoring("2026-11-28", {"changed": []}) == []


def test_names_of_task_files_become_ids_that_airflow_takes():
    assert task_id_of("look", "my täsk") == "look_my_t_sk"
    assert claim_of("my täsk", "2026-11-28") == "monitor__my_t_sk__2026-11-28"


def test_monitor_hands_the_retrain_form_what_it_takes(home):
    dags = DagBag(str(DAGS)).dags
    params = retraining("tickets", {"retrain": {"granted": True, "reason": "x" * 2000}})
    form = dags["retrain"].params
    assert params.keys() <= {*form}
    for name, value in params.items():
        assert form.get_param(name).resolve(value) == value


def test_every_task_has_its_steps_in_the_monitor(home):
    dag = DagBag(str(DAGS)).dags["monitor"]
    assert dag.timetable.expression == "0 6 * * *"
    for name in ("reviews", "tickets"):
        assert dag.get_task(f"look_{name}").upstream_task_ids == {"resolve_date"}
        assert f"granted_{name}" in dag.get_task(f"retrain_{name}").upstream_task_ids
        assert f"late_{name}" in dag.get_task(f"rescore_{name}").upstream_task_ids
        assert dag.get_task(f"rescore_{name}").partial_kwargs["trigger_dag_id"] == (
            f"nightly_scoring_{name}"
        )


def form(**changed):
    return {name: param.resolve() for name, param in PARAMS.items()} | {"task": "tickets"} | changed


def test_form_that_is_left_alone_leaves_the_tasks_own_settings():
    assert pretraining_arguments(form(), "manual__1") == ["tickets", "--run", run_name("manual__1")]


def test_form_that_is_filled_in_overrides_them():
    filled = form(
        texts=" archive/*.csv ", objective="mlm", epochs=2, new_words=0, whole_words=True, seed=4
    )
    assert pretraining_arguments(filled, "manual__1")[3:] == [
        "pretrain.corpus=archive/*.csv",
        "pretrain.objective=mlm",
        "pretrain.epochs=2",
        "pretrain.new_tokens=0",
        "pretrain.whole_word=true",
        "pretrain.seed=4",
    ]


def test_emptied_field_is_as_good_as_untouched():
    assert pretraining_arguments(form(texts=None), "r") == pretraining_arguments(form(), "r")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", "nobody"),
        ("texts", "x" * 1001),
        ("texts", 3),
        ("objective", "electra"),
        ("epochs", -1),
        ("epochs", 101),
        ("epochs", 1.5),
        ("new_words", -2),
        ("new_words", 20_001),
        ("whole_words", "yes"),
        ("seed", -1),
    ],
)
def test_failure_19_the_form_refuses_what_the_job_would(field, value):
    with pytest.raises(ParamValidationError, match="Failed validating"):
        PARAMS[field].resolve(value)


def test_failure_19_every_default_of_the_form_is_valid():
    assert form()["objective"] == OWN
    for name, param in PARAMS.items():
        assert param.resolve() == param.value, name
