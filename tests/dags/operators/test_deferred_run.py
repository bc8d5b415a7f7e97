"""A whole run of a DAG whose task waits in the triggerer; the cluster is one in memory."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
DAG = """
from airflow.sdk import dag
from dags.operators.job import JobOperator

@dag(schedule=None)
def deferring():
    JobOperator(
        task_id="score", job="score", arguments=["tickets"], ray_address="http://head:8265",
        deferrable=True,
    )

deferring()
"""
# In a process of its own: Airflow reads once where its DAGs lie.
RUN = """
import json, runpy, sys
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.dagbag import DagBag
import dags.operators.job, dags.operators.triggers
fake, folder = runpy.run_path(sys.argv[1])["FakeCluster"](), sys.argv[2]
dags.operators.job.RayCluster = dags.operators.triggers.RayCluster = lambda address: fake

def end_at_the_fourth_look():
    if fake.looks == 4:
        fake.end(fake.submitted[0], exit_code=0, result={"rows": 3})

fake.on_look = end_at_the_fourth_look
run = DagBag(folder).dags["deferring"].test()
(task,) = run.get_task_instances()
print(json.dumps([run.state, task.xcom_pull(task_ids="score"), len(fake.orders), fake.looks]))
"""


def test_deferred_task_gets_its_result_from_one_job(tmp_path):
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "deferring.py").write_text(DAG)
    (tmp_path / "airflow").mkdir()
    settings = runpy.run_path(str(REPOSITORY / "infra" / "airflow" / "settings.py"))
    environment = settings["airflow_environment"](tmp_path, repository=tmp_path, log_level="ERROR")

    done = subprocess.run(
        [sys.executable, "-c", RUN, str(HERE / "conftest.py"), str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        cwd=REPOSITORY,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["success", {"rows": 3}, 1, 4]
