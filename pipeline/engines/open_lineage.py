"""OpenLineage events by its own client, which its standard variables configure."""

from __future__ import annotations

import datetime as dt
import logging
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from openlineage.client import OpenLineageClient, set_producer
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset as lineage,
)
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset as quality,
)
from openlineage.client.facet_v2 import (
    dataset_type_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    tags_run,
)
from openlineage.client.uuid import generate_static_uuid

from pipeline.data_flow import DataFlow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from openlineage.client.facet_v2 import DatasetFacet, InputDatasetFacet, JobFacet, RunFacet

    from pipeline.data_flow import DataSet, EventKind, Parent, StepRun

ENGINE = "nightmill"
_MAX_ERROR_CHARS = 2000


class OpenLineage:
    """Emits events of runs; where to is said by `OPENLINEAGE_URL` or `OPENLINEAGE__TRANSPORT__*`.

    `namespace` is that of jobs.
    """

    def __init__(self, *, namespace: str) -> None:
        logging.getLogger("openlineage").setLevel(logging.ERROR)
        self._version = installed_version(ENGINE)
        set_producer(f"urn:{ENGINE}:{self._version}")
        self._namespace = namespace
        self._client = OpenLineageClient()

    def emit(
        self,
        kind: EventKind,
        run: StepRun,
        *,
        at: dt.datetime,
        flow: DataFlow | None = None,
        parent: Parent | None = None,
        error: str = "",
    ) -> None:
        """Hands one event to the transport, which raises whatever it likes."""
        flow = flow or DataFlow()
        facets = self._run_facets(run, flow, parent)
        if error:
            message = error[:_MAX_ERROR_CHARS]
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "Python")
        self._client.emit(
            RunEvent(
                eventType=RunState[kind],
                eventTime=at.isoformat(),
                run=Run(runId=run.run_id, facets=facets),
                job=Job(self._namespace, f"{run.task}.{run.step}", facets=_job_facets()),
                inputs=[_input(each) for each in flow.inputs],
                outputs=[_output(each, flow.inputs) for each in flow.outputs],
            )
        )

    def _run_facets(
        self, run: StepRun, flow: DataFlow, parent: Parent | None
    ) -> dict[str, RunFacet]:
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=self._version, name=ENGINE
            )
        }
        if run.date:
            start = dt.datetime.fromisoformat(run.date).replace(tzinfo=dt.UTC)
            facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(
                start.isoformat(), (start + dt.timedelta(days=1)).isoformat()
            )
        if parent is not None:
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=parent.run_id),
                job=parent_run.Job(namespace=parent.namespace, name=parent.name),
            )
        if flow.tags:
            tags = [
                tags_run.TagsRunFacetFields(key, value, source=ENGINE.upper())
                for key, value in flow.tags.items()
            ]
            facets["tags"] = tags_run.TagsRunFacet(tags=tags)
        return facets


def task_instance_run_id(moment: dt.datetime, name: str) -> str:
    """The id that Airflow's OpenLineage provider gives to a try of a task.

    `name` is `NAMESPACE.DAG.TASK.TRY.MAP_INDEX`, `moment` the run's logical date.
    """
    return str(generate_static_uuid(instant=moment, data=name.encode()))


def _job_facets() -> dict[str, JobFacet]:
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration=ENGINE.upper(), jobType="JOB"
    )
    return {"jobType": kind}


def _input(data: DataSet) -> InputDataset:
    facets: dict[str, InputDatasetFacet] = {}
    if data.rows is not None or data.files is not None:
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=data.rows, size=data.size_bytes, fileCount=data.files
        )
    if data.checks:
        facets["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(
            assertions=[
                quality.Assertion(assertion=each.rule, success=each.passed, column=each.column)
                for each in data.checks
            ]
        )
    return InputDataset(*data.name, facets=_dataset_facets(data), inputFacets=facets)


def _output(data: DataSet, inputs: Iterable[DataSet]) -> OutputDataset:
    facets = _dataset_facets(data)
    if data.sources:
        facets["columnLineage"] = lineage.ColumnLineageDatasetFacet(
            fields={
                column: lineage.Fields(inputFields=_input_fields(sources, inputs))
                for column, sources in data.sources.items()
            }
        )
    if data.rows is None and data.files is None:
        return OutputDataset(*data.name, facets=facets)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=data.rows, size=data.size_bytes, fileCount=data.files
    )
    return OutputDataset(*data.name, facets=facets, outputFacets={"outputStatistics": statistics})


def _input_fields(columns: Iterable[str], inputs: Iterable[DataSet]) -> list[lineage.InputField]:
    """Each column in each input that has columns at all."""
    columns = tuple(columns)
    return [
        lineage.InputField(*data.name, field=column)
        for data in inputs
        if not data.is_model
        for column in columns
        if column in {name for name, _ in data.columns}
    ]


def _dataset_facets(data: DataSet) -> dict[str, DatasetFacet]:
    kind = "MODEL" if data.is_model else "FILE"
    facets: dict[str, DatasetFacet] = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=kind)
    }
    if data.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(data.version)
    if data.columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=name, type=type_ or None)
                for name, type_ in data.columns
            ]
        )
    return facets
