from __future__ import annotations

import re
from pathlib import Path

import pytest

from dags.operators.submission import Identity, environment_of, folder_of
from schemas.home import Home

HOME = Home(Path("home"))


def test_id_is_the_same_for_each_try_and_another_for_any_other_work(context_of):
    ids = [
        Identity.of(context, home).base
        for context, home in [
            (context_of(), HOME),
            (context_of(max_tries=5), HOME),
            (context_of(map_index=0), HOME),
            (context_of(task_id="report"), HOME),
            (context_of(dag_id="other"), HOME),
            (context_of(run_id="scheduled__2026-11-29T02:00:00+00:00"), HOME),
            (context_of(), Home(Path("elsewhere"))),
        ]
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 6


def test_id_fits_a_url_and_a_file_name(context_of):
    identity = Identity.of(context_of(run_id="a/b c+ü?" * 60), HOME)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", identity.base)
    assert len(identity.base) <= 113


def test_numbers_go_into_ids_and_back(context_of):
    identity = Identity.of(context_of(run_id="r-2"), HOME)
    assert identity.submission_id(1) == identity.base
    assert identity.submission_id(12) == f"{identity.base}-12"
    assert [identity.number_of(identity.submission_id(n)) for n in (1, 2, 12)] == [1, 2, 12]


def test_generation_changes_when_a_task_is_cleared_or_its_run_made_anew(context_of):
    same = Identity.of(context_of(), HOME), Identity.of(context_of(), HOME)
    assert same[0].generation == same[1].generation
    assert same[0].owner != same[1].owner
    others = {Identity.of(context_of(**change), HOME).generation for change in CHANGES}
    assert len(others | {same[0].generation}) == 3


CHANGES = ({"max_tries": 4}, {"began": 3})


def test_folder_lies_in_the_home():
    assert folder_of(HOME, "x-2") == Path("home/ray-jobs/x-2")


def test_only_what_is_listed_travels():
    variables = {
        "NIGHTMILL_HOME": "home",
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
        "AIRFLOW_CTX_DAG_ID": "nightly",
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "AIRFLOW__CORE__FERNET_KEY": "x",
        "PATH": "bin",
        "TZ": "UTC",
    }
    sent, kept_back = environment_of(variables, more=("TZ",))
    assert sorted(sent) == [
        "AIRFLOW_CTX_DAG_ID", "MLFLOW_TRACKING_URI", "NIGHTMILL_HOME",
        "OPENLINEAGE__TRANSPORT__TYPE", "TZ",
    ]  # fmt: skip
    assert kept_back == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("MLFLOW_TRACKING_TOKEN", "x"),
        ("MY_PASSWORD", "x"),
        ("OPENLINEAGE__TRANSPORT__AUTH__APIKEY", "x"),
        ("MLFLOW_TRACKING_URI", "postgresql://anna:s3cret@db/mlflow"),
        ("OPENLINEAGE_URL", "http://lineage?api_key=x"),
    ],
)
def test_secrets_do_not_travel_even_where_they_are_asked_for(name, value):
    assert environment_of({name: value}, more=(name,)) == ({}, [name])
