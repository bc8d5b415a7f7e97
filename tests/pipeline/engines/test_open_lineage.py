"""Events as they leave the process, read back by the classes of OpenLineage's own client."""

from __future__ import annotations

import datetime as dt
import json

import attr
import pytest
from openlineage.client import facet_v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import BaseFacet
from openlineage.client.serde import Serde

from pipeline.data_flow import Check, DataFlow, DataSet, Parent, StepRun
from pipeline.engines.open_lineage import OpenLineage

RUN_ID = "6f1ed002-ab5b-5a5b-8d0e-5d6d3a5a4d3e"
AT = dt.datetime(2026, 11, 29, 2, 30, tzinfo=dt.UTC)
FLOW = DataFlow(
    inputs=(
        DataSet(
            "/in/date=2026-11-28", rows=10, size_bytes=2000, files=2, version="v1",
            columns=(("id", ""), ("body", "")), checks=(Check("min_rows", True),),
        ),
        DataSet("models:/tickets/3", version="abc"),
    ),
    outputs=(
        DataSet(
            "/out", rows=9, files=1, columns=(("record_id", "string"), ("topic", "string")),
            sources={"record_id": ("id",), "topic": ("body",)},
        ),
    ),
    tags={"run": "r1"},
)  # fmt: skip


@pytest.fixture
def emit(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")

    def send(kind, **more):
        run = StepRun("score", "tickets", RUN_ID, "2026-11-28")
        OpenLineage(namespace="mine").emit(kind, run, at=AT, **more)
        return json.loads(path.read_text().splitlines()[-1])

    return send


def facet_classes():
    found, todo = {}, [BaseFacet]
    while todo:
        each = todo.pop()
        todo += each.__subclasses__()
        found[each._get_schema()] = each
    return found


def facets_of(raw):
    """Facets as the client's classes; one that is not of its schema does not fit its class."""
    assert facet_v2.__all__
    classes = facet_classes()
    read = {}
    for name, facet in raw.items():
        kind = classes[facet["_schemaURL"]]
        wanted = {field.name for field in attr.fields(kind) if field.init}
        plain = {key: value for key, value in facet.items() if not key.startswith("_")}
        assert plain.keys() <= wanted, name
        read[name] = kind(**plain, producer=facet["_producer"])
    return read


def read_back(raw):
    def data(kind, each, own):
        more = {own: facets_of(each[own])} if own in each else {}
        return kind(each["namespace"], each["name"], facets=facets_of(each["facets"]), **more)

    return RunEvent(
        eventType=RunState[raw["eventType"]],
        eventTime=raw["eventTime"],
        producer=raw["producer"],
        run=Run(raw["run"]["runId"], facets_of(raw["run"]["facets"])),
        job=Job(raw["job"]["namespace"], raw["job"]["name"], facets_of(raw["job"]["facets"])),
        inputs=[data(InputDataset, each, "inputFacets") for each in raw["inputs"]],
        outputs=[data(OutputDataset, each, "outputFacets") for each in raw["outputs"]],
    )


@pytest.mark.parametrize("kind", ["START", "COMPLETE", "FAIL"])
def test_an_event_is_what_the_client_itself_would_read(emit, kind):
    parent = Parent(RUN_ID, "default", "dag.task")
    raw = emit(kind, flow=FLOW, parent=parent, error="ArtifactError: no" if kind == "FAIL" else "")
    assert Serde.to_dict(read_back(raw)) == raw
    assert (raw["eventType"], raw["eventTime"]) == (kind, "2026-11-29T02:30:00+00:00")
    assert raw["job"]["namespace"] == "mine"
    assert raw["job"]["name"] == "tickets.score"
    assert raw["run"]["facets"]["nominalTime"]["nominalEndTime"].startswith("2026-11-29T00:00")
    assert ("errorMessage" in raw["run"]["facets"]) == (kind == "FAIL")


def test_columns_are_traced_to_data_only_and_models_are_models(emit):
    raw = emit("COMPLETE", flow=FLOW)
    fields = raw["outputs"][0]["facets"]["columnLineage"]["fields"]
    traced = {name: field["inputFields"] for name, field in fields.items()}
    place = {"namespace": "file", "name": "/in/date=2026-11-28"}
    assert [{k: v for k, v in each.items() if v} for each in traced["topic"]] == [
        place | {"field": "body"}
    ]
    kinds = [each["facets"]["datasetType"]["datasetType"] for each in raw["inputs"]]
    assert kinds == ["FILE", "MODEL"]


def test_an_end_without_facts_says_who_and_when(emit):
    raw = emit("COMPLETE")
    assert (raw["run"]["runId"], raw["inputs"], raw["outputs"]) == (RUN_ID, [], [])
