from __future__ import annotations

import threading
from functools import partial
from uuid import UUID

import pytest

from jobs import lineage
from jobs.lineage import Journal, Step, lineage_told, step
from pipeline.data_flow import DataFlow, DataSet
from pipeline.publish import Partition
from schemas.errors import ArtifactError
from schemas.home import Home
from schemas.partition import parse_date

DAY = "2026-11-28"
AIRFLOW = {
    "AIRFLOW_CTX_DAG_ID": "nightmill_tiny",
    "AIRFLOW_CTX_TASK_ID": "score",
    "AIRFLOW_CTX_DAG_RUN_ID": "manual__1",
    "AIRFLOW_CTX_TRY_NUMBER": "2",
    "AIRFLOW_CTX_LOGICAL_DATE": "2026-11-28T02:00:00+00:00",
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in (*AIRFLOW, "OPENLINEAGE_URL", "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def events(lineage_events):
    return lineage_events


class FakeClient:
    """Keeps what it is given, or raises."""

    def __init__(self, error=None):
        self.told, self.error = [], error

    def emit(self, kind, run, **more):
        if self.error is not None:
            raise self.error
        self.told.append((kind, run.step, more["flow"], more["error"]))


def journal(client):
    return Journal(client, namespace="here", parent=None)


def kinds(events):
    return [(event["job"]["name"], event["eventType"]) for event in events]


@pytest.mark.slow
def test_a_finished_night_tells_the_same_end_again(tiny_home, write_night, nightmill, events):
    write_night(tiny_home, DAY, rows=12)
    assert nightmill("score", "tiny", "--date", DAY, home=tiny_home).exit_code == 0
    start, end = events()
    assert kinds([start, end]) == [("tiny.score", "START"), ("tiny.score", "COMPLETE")]
    assert start["run"]["runId"] == end["run"]["runId"]
    counters = Partition(tiny_home, "tiny", parse_date(DAY, name="day")).published().counters
    scores, quarantine = end["outputs"]
    assert scores["name"] == str(tiny_home.scores("tiny") / f"date={DAY}")
    assert scores["outputFacets"]["outputStatistics"]["rowCount"] == counters.rows_scored == 9
    assert quarantine["outputFacets"]["outputStatistics"]["rowCount"] == counters.rows_quarantined
    night, model = end["inputs"]
    assert night["name"] == str(tiny_home.root / f"incoming/tiny/date={DAY}")
    assert night["inputFacets"]["inputStatistics"]["fileCount"] == 1
    assert model["facets"]["version"]["datasetVersion"]
    lineage_of = scores["facets"]["columnLineage"]["fields"]
    assert [each["field"] for each in lineage_of["decision"]["inputFields"]] == ["subject", "body"]
    assert [each["field"] for each in lineage_of["record_id"]["inputFields"]] == ["ticket_id"]
    assert nightmill("score", "tiny", "--date", DAY, home=tiny_home).exit_code == 0
    assert events()[2:] == [end]


@pytest.mark.slow
def test_a_check_tells_what_was_expected_and_who_asked(
    tiny_home, write_night, nightmill, events, monkeypatch
):
    for name, value in AIRFLOW.items():
        monkeypatch.setenv(name, value)
    write_night(tiny_home, DAY, rows=12)
    broken = "contract.max_reject_fraction=0.01"
    assert nightmill("validate", "tiny", "--date", DAY, broken, home=tiny_home).exit_code == 3
    start, end = events()
    assert kinds([start, end]) == [("tiny.validate", "START"), ("tiny.validate", "FAIL")]
    parent = end["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"]) == (
        "default",
        "nightmill_tiny.score",
    )
    # Airflow's provider makes it of the logical date, so that it sorts by that.
    assert UUID(parent["run"]["runId"]).int >> 80 == 1795831200000
    tags = {tag["key"]: tag["value"] for tag in end["run"]["facets"]["tags"]["tags"]}
    assert (tags["airflow_dag_run"], tags["airflow_try"]) == ("manual__1", "2")
    checks = end["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {each["assertion"]: each["success"] for each in checks}["max_reject_fraction"] is False
    assert "rejected" in end["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.slow
def test_a_night_without_input_fails_in_its_check(tiny_home, nightmill, events):
    assert nightmill("validate", "tiny", "--date", DAY, home=tiny_home).exit_code == 3
    assert kinds(events()) == [("tiny.validate", "START"), ("tiny.validate", "FAIL")]
    assert events()[1]["run"]["facets"]["errorMessage"]["message"].startswith("DataContractError")


def test_a_transport_that_fails_costs_one_warning(events, home, monkeypatch, caplog):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", "/nowhere/at/all/events.jsonl")
    with lineage_told():
        step("score", "tiny", home=home, identity="1").start().complete(DataFlow)
    assert caplog.text.count("lineage events are not told (RuntimeError") == 1


def test_settings_that_make_no_sense_cost_one_warning(events, home, monkeypatch, caplog):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with lineage_told():
        step("score", "tiny", home=home, identity="1").start().complete(DataFlow)
    assert caplog.text.count("lineage events cannot be told") == 1


def test_nothing_is_told_where_nobody_asks(home):
    with lineage_told():
        run = step("score", "tiny", home=home, identity="1")
        run.complete(lambda: pytest.fail("facts were gathered for nobody"))


def test_equal_work_has_the_same_run_id(home):
    def run_id(**changes):
        named = {"home": home, "identity": "1"} | changes
        return step("score", "tiny", **named)._run.run_id

    assert run_id() == run_id()
    others = [run_id(identity="2"), run_id(home=Home(home.root / "other"))]
    assert len({run_id(), *others}) == 3


def test_what_an_error_leaves_open_has_failed(events, home):
    def work():
        step("finetune", "tiny", home=home, identity="1").start().complete(DataFlow)
        step("bundle", "tiny", home=home, identity="1").start()
        raise ArtifactError("no variant passes")

    with pytest.raises(ArtifactError), lineage_told():
        work()
    assert kinds(events())[2:] == [("tiny.bundle", "START"), ("tiny.bundle", "FAIL")]
    message = events()[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "ArtifactError: no variant passes"


def test_of_a_foreign_error_only_its_kind_is_told(home):
    client = FakeClient()
    told = journal(client)
    run = Step(told, step("score", "tiny", home=home, identity="1")._run).start()
    with pytest.raises(ValueError, match="secret"), run.watched():
        raise ValueError("the text of a secret ticket")
    told.close()
    assert client.told[-1] == ("FAIL", "score", DataFlow(), "ValueError")


def test_facts_that_cannot_be_gathered_still_tell_the_end(home, caplog):
    client = FakeClient()
    told = journal(client)
    run = Step(told, step("score", "tiny", home=home, identity="1")._run).start()
    run.complete(partial(dict.__getitem__, {}, "rows"))
    told.close()
    assert [kind for kind, *_ in client.told] == ["START", "COMPLETE"]
    assert caplog.text.count("lineage events are not told (KeyError") == 1


def test_a_server_that_hangs_holds_the_job_only_for_so_long(home, caplog, monkeypatch):
    monkeypatch.setattr(lineage, "_LAST_WAIT_S", 0.05)
    answers = threading.Event()
    client = FakeClient()
    client.emit = lambda *_, **__: answers.wait(30)
    told = journal(client)
    Step(told, step("score", "tiny", home=home, identity="1")._run).start()
    told.close()
    answers.set()
    assert "were not taken within" in caplog.text


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/data/in", ("file", "/data/in")),
        ("s3://bucket/a/b", ("s3://bucket", "a/b")),
        ("s3://key:word@bucket/a", ("s3://bucket", "a")),
        ("models:/tickets/3", ("mlflow", "tickets/3")),
    ],
)
def test_names_follow_the_rules_of_open_lineage(place, name):
    assert DataSet(place).name == name
