"""What each step read and wrote, from the documents that it leaves anyway."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobs.started_by import airflow_task
from pipeline.data_flow import REGISTERED, Check, DataFlow, DataSet
from schemas.fingerprint import digest_of
from schemas.records import quarantine_schema, scores_schema
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from pipeline.engines.quality_pages import CheckedExpectation
    from pipeline.publish import Partition
    from schemas.bundle import BundleSpec
    from schemas.home import Home
    from schemas.manifest import InputFile, ModelRef
    from schemas.task import DataConfig, TaskConfig
    from schemas.training import Finetuned, Registered

_LOCAL_MODEL = "path:"
# Columns of the scores that a row's texts decide, beside those of the heads.
_OF_TEXT = ("decision", "lang", "n_windows", "spans", "truncated", "flags", "text_hash")


def validated(
    task: TaskConfig,
    home: Home,
    inputs: Iterable[InputFile],
    checked: Iterable[CheckedExpectation],
    *,
    pages: str,
) -> DataFlow:
    """A partition with what was expected of it, and the pages about it."""
    checks = tuple(
        Check(each.asked.key, each.passed, each.asked.column or None) for each in checked
    )
    return DataFlow(
        inputs=_files(inputs, home, _incoming_columns(task.data), checks=checks),
        outputs=(DataSet(pages),),
        tags=_tags(),
    )


def scored(task: TaskConfig, home: Home, partition: Partition) -> DataFlow:
    """A night: files and models into scores and quarantine, with the manifest's counts."""
    manifest, last = partition.published(), partition.publications()[-1]
    models = [manifest.model, *([manifest.cascade.small] if manifest.cascade else [])]
    files = _files(manifest.inputs, home, _incoming_columns(task.data))
    counters = manifest.counters
    folder = f"date={manifest.date}"
    scores = DataSet(
        str(home.scores(task.name) / folder),
        rows=counters.rows_scored,
        files=len(manifest.scores),
        version=manifest.run,
        columns=_columns(scores_schema(task.heads)),
        sources=_sources(task),
    )
    quarantine = DataSet(
        str(home.quarantine(task.name) / folder),
        rows=counters.rows_quarantined,
        files=len(manifest.quarantine),
        version=manifest.run,
        columns=_columns(quarantine_schema()),
        sources=_id_source(task.data),
    )
    tags = _tags(
        run=manifest.run,
        rows_read=counters.rows_read,
        rows_to_review=counters.rows_to_review,
        **{f"quarantined_{reason}": n for reason, n in counters.quarantined_by_reason.items()},
    )
    inputs = (*files, *(_model(model, task) for model in models))
    at = dt.datetime.fromisoformat(last.published_at)
    return DataFlow(inputs, (scores, quarantine), tags, at)


def finetuned(
    task: TaskConfig, home: Home, files: Iterable[InputFile], done: Finetuned
) -> DataFlow:
    """Labelled files into a checkpoint."""
    checkpoint = TrainingRun(home, task.name, done.run).checkpoint
    return DataFlow(
        inputs=_files(files, home, _labelled_columns(task)),
        outputs=(DataSet(str(checkpoint), version=done.fingerprint),),
        tags=_tags(
            run=done.run,
            mlflow_run_id=done.mlflow_run_id,
            valid_macro_f1=round(done.valid_macro_f1, 4),
            **{f"rows_{split}": rows for split, rows in done.rows.items()},
            **{f"rejected_{reason}": rows for reason, rows in done.rejected.items()},
        ),
    )


def bundled(place: TrainingRun, done: Finetuned, spec: BundleSpec) -> DataFlow:
    """A checkpoint into a bundle, with the answer of its gates."""
    failed = [f"{gate.variant}.{gate.gate}" for gate in spec.gates if not gate.passed]
    return DataFlow(
        inputs=(
            DataSet(str(place.checkpoint), version=done.fingerprint),
            DataSet(str(place.examples), rows=sum(done.rows.values()), version=done.data_digest),
        ),
        outputs=(DataSet(str(place.bundle), version=spec.digest),),
        tags=_tags(
            run=done.run,
            mlflow_run_id=done.mlflow_run_id,
            variant=spec.variant,
            gates=len(spec.gates),
            gates_failed=", ".join(failed),
        ),
    )


def registered(place: TrainingRun, done: Finetuned, found: Registered) -> DataFlow:
    """A bundle into a version of a registered model."""
    address = f"{REGISTERED}{found.name}/{found.version}"
    return DataFlow(
        inputs=(DataSet(str(place.bundle), version=found.digest),),
        outputs=(DataSet(address, version=found.digest),),
        tags=_tags(run=done.run, mlflow_run_id=done.mlflow_run_id),
    )


def _files(
    files: Iterable[InputFile],
    home: Home,
    columns: tuple[str, ...],
    *,
    checks: tuple[Check, ...] = (),
) -> tuple[DataSet, ...]:
    """Files as data sets by folder: a partition may be thousands of them."""
    by_folder = defaultdict[str, list["InputFile"]](list)
    for file in files:
        place = file.name if "://" in file.name else str(home.resolve(file.name))
        by_folder[_folder(place)].append(file)
    return tuple(
        DataSet(
            folder,
            rows=sum(file.rows for file in found),
            size_bytes=sum(file.bytes for file in found),
            files=len(found),
            version=digest_of([[file.name, file.sha256] for file in found])[:16],
            columns=tuple((name, "") for name in columns),
            checks=checks,
        )
        for folder, found in by_folder.items()
    )


def _folder(place: str) -> str:
    if "://" in place:
        return place.rpartition("/")[0]
    return str(PurePosixPath(place).parent)


def _model(model: ModelRef, task: TaskConfig) -> DataSet:
    local = task.model_uri.removeprefix(_LOCAL_MODEL)
    return DataSet(model.address(local=local), version=model.digest)


def _incoming_columns(data: DataConfig) -> tuple[str, ...]:
    return (*([data.id_column] if data.id_column else []), *data.text_columns)


def _labelled_columns(task: TaskConfig) -> tuple[str, ...]:
    return (*_incoming_columns(task.data), *(head.column for head in task.heads.values()))


def _columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in schema)


def _sources(task: TaskConfig) -> dict[str, tuple[str, ...]]:
    """Columns of the scores by the columns of the input that decide them."""
    texts = task.data.text_columns
    answers = {
        field.name: texts
        for field in scores_schema(task.heads)
        if field.name in _OF_TEXT
        or any(field.name == head or field.name.startswith(f"{head}_") for head in task.heads)
    }
    return _id_source(task.data) | answers


def _id_source(data: DataConfig) -> dict[str, tuple[str, ...]]:
    return {"record_id": (data.id_column,)} if data.id_column else {}


def _tags(**facts: str | float) -> dict[str, str]:
    """Facts as tags, and who started the run; empty ones are left out."""
    started_by = airflow_task()
    airflow = (
        {} if started_by is None else {f"airflow_{k}": v for k, v in started_by.fields.items()}
    )
    return {name: str(value) for name, value in facts.items() if str(value)} | airflow
