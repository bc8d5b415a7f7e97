from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators.hitl import ApprovalOperator

from dags.operators.job import JobOperator

DAGS = Path(__file__).resolve().parents[2] / "dags"
HEAVY = ("torch", "transformers", "ray", "mlflow", "onnxruntime", "great_expectations")

# Each file on its own, by this process's own seconds: a busy machine says nothing of a file.
_LOAD = """
import json, pathlib, sys, time
import airflow.dag_processing.dagbag as dagbag, airflow.sdk
import airflow.providers.standard.operators.hitl
import airflow.providers.standard.operators.trigger_dagrun
airflow.sdk.DAG, airflow.sdk.task, airflow.sdk.BaseOperator
before = set(sys.modules)
errors, dags, seconds = {}, [], {}
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    began = time.process_time()
    bag = dagbag.BundleDagBag(dag_folder=str(file), bundle_path=sys.argv[1], bundle_name="dags")
    seconds[file.name] = time.process_time() - began
    errors |= bag.import_errors
    dags += bag.dags
print(json.dumps({
    "errors": errors,
    "dags": sorted(dags),
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
    "added": sorted({name.split(".")[0] for name in set(sys.modules) - before}),
    "ours": sys.modules["dags"].__file__,
    "seconds": seconds,
}))
"""


@pytest.fixture
def dags(home):
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    return bag.dags


def load(home):
    """What a process that only parses DAG files, as a scheduler's does, ends up with."""
    process = subprocess.run(
        [sys.executable, "-c", _LOAD, str(DAGS)],
        env={**os.environ, "NIGHTMILL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load(tmp_path_factory.mktemp("home"))


def test_files_load_without_errors(loaded):
    assert loaded["errors"] == {}
    assert loaded["dags"] == [
        "continue_pretraining",
        "monitor",
        "nightly_scoring_reviews",
        "nightly_scoring_tickets",
        "retrain",
    ]
    assert Path(loaded["ours"]) == DAGS / "__init__.py"


def test_parsing_needs_no_engine(loaded):
    assert set(HEAVY) & set(loaded["modules"]) == set()
    assert {"pandas", "pyarrow", "jobs", "pipeline"} & set(loaded["added"]) == set()


def test_each_file_parses_within_a_second(loaded):
    assert {"continue_pretraining.py", "monitor.py", "nightly_scoring.py", "retrain.py"} < set(
        loaded["seconds"]
    )
    assert {file: s for file, s in loaded["seconds"].items() if s >= 1.0} == {}


@pytest.mark.slow
def test_fifty_task_files_parse_within_a_second_and_need_no_engine(tmp_path):
    (tmp_path / "tasks").mkdir()
    tickets = (DAGS.parent / "schemas" / "tasks" / "tickets.yaml").read_text()
    own = "schedule: {pool: gpu, deadline_minutes: 90, late: {wait_minutes: 60, rescore_days: 3}}\n"
    for number in range(50):
        text = tickets.replace("name: tickets", f"name: task_{number:02}") + own
        (tmp_path / "tasks" / f"task_{number:02}.yaml").write_text(text)

    found = load(tmp_path)

    assert found["errors"] == {}
    assert len([dag for dag in found["dags"] if dag.startswith("nightly_scoring_task_")]) == 50
    assert {file: s for file, s in found["seconds"].items() if s >= 1.0} == {}
    assert {*HEAVY, "pandas", "pyarrow", "jobs", "pipeline"} & set(found["added"]) == set()


def test_forms_ask_for_plain_values_with_defaults(dags):
    for dag in dags.values():
        for name in dag.params:
            field = dag.params.get_param(name)
            where = f"{dag.dag_id}.{name}"
            types = field.schema["type"]
            kind = {"string": str, "integer": int, "boolean": bool}[
                types if isinstance(types, str) else types[0]
            ]
            assert type(dag.params[name]) is kind, where
            # An empty field that may not be null counts as missing and blocks the form's button.
            assert dag.params[name] != "" or "null" in types, where
            assert None not in field.schema.get("enum", []), where
            assert field.schema["title"], where
            assert field.description, where


def test_every_dag_tells_people_what_it_does(dags):
    for dag in dags.values():
        assert len(dag.doc_md) > 200, dag.dag_id
        assert dag.description, dag.dag_id
        assert dag.catchup is False
        # Runs of retrain wait for people beside each other.
        assert dag.max_active_runs == (16 if dag.dag_id == "retrain" else 1), dag.dag_id


def test_nightly_runs_for_the_day_that_has_ended(dags):
    dag = dags["nightly_scoring_tickets"]
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert (dag.timetable.expression, dag.timetable.timezone) == ("0 2 * * *", "UTC")
    upstream = {task.task_id: task.upstream_task_ids for task in dag.tasks}
    assert upstream == {
        "resolve_dates": set(),
        "validate": {"resolve_dates"},
        "score": {"resolve_dates", "validate"},
        "publish": {"score"},
        "report": {"resolve_dates", "publish"},
        "monitor": {"resolve_dates", "publish"},
    }


def test_task_of_the_home_gets_a_dag_and_a_place_in_the_form(home):
    text = (DAGS.parent / "schemas" / "tasks" / "reviews.yaml").read_text()
    (home / "tasks").mkdir()
    own = text.replace("name: reviews", "name: chats\nschedule: null")
    (home / "tasks" / "chats.yaml").write_text(own)

    dags = DagBag(str(DAGS)).dags

    assert dags["nightly_scoring_chats"].schedule is None
    assert dags["retrain"].params.get_param("task").schema["enum"] == [
        "chats",
        "reviews",
        "tickets",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("heads: [", "chats.yaml: not valid YAML"),
        ("name: chats\ncolour: red", "chats.yaml: .*unknown key 'colour'"),
        (None, "not valid YAML|decode"),
        ("SCHEDULE", "0 25"),
    ],
)
def test_broken_task_file_is_its_own_trouble(home, text, problem):
    (home / "tasks").mkdir()
    path = home / "tasks" / "chats.yaml"
    if text is None:
        path.write_bytes(b"\xff\xfe\x00")
    elif text == "SCHEDULE":
        reviews = (DAGS.parent / "schemas" / "tasks" / "reviews.yaml").read_text()
        path.write_text(reviews.replace("name: reviews", "name: chats\nschedule: 0 25 * * *"))
    else:
        path.write_text(text)

    bag = DagBag(str(DAGS))

    assert bag.import_errors == {}
    assert "score" in bag.dags["nightly_scoring_tickets"].task_ids
    broken = bag.dags["nightly_scoring_chats"]
    assert broken.task_ids == ["load_task"]
    with pytest.raises(Exception, match=problem) as caught:
        broken.get_task("load_task").python_callable()
    assert type(caught.value).__name__ == "AirflowFailException"
    assert "retrain" in bag.dags


def test_file_name_that_is_no_dag_id_still_loads(home):
    (home / "tasks").mkdir()
    (home / "tasks" / "my täsk.yaml").write_text("nothing")
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    assert "nightly_scoring_my_t_sk" in bag.dags


def test_promotion_hangs_on_the_answer(dags):
    dag = dags["retrain"]
    assert dag.schedule is None
    approve, decide, promote = (dag.get_task(name) for name in ("approve", "decide", "promote"))
    assert isinstance(approve, ApprovalOperator)
    assert approve.defaults == ["Reject"]
    assert approve.response_timeout.days == 1
    assert approve.upstream_task_ids == {"approval_asked"}
    assert "decide" in approve.downstream_task_ids
    assert decide.trigger_rule == "none_failed_min_one_success"
    assert decide.upstream_task_ids == {"approval_asked", "approve", "register"}
    # Only `decide` leads to the promotion, and nothing but its success will do.
    for outcome in (promote, dag.get_task("reject")):
        assert outcome.upstream_task_ids == {"decide"}
        assert outcome.trigger_rule == "all_success"


def test_jobs_are_retried_and_nothing_else(dags):
    for dag in dags.values():
        for task in dag.tasks:
            expected = 2 if isinstance(task, JobOperator) else 0
            assert task.retries == expected, f"{dag.dag_id}.{task.task_id}"
