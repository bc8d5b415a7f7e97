"""MLflow: what a training run was made of, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from pipeline.engines.first_use import alone_at
from pipeline.engines.mlflow_client import ReachedClient
from pipeline.engines.model_version import RUN_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from schemas.home import Home

_MAX_PARAM_CHARS = 500


class TrackedRuns:
    """Runs at the home's tracking address."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._uri = home.tracking_uri
        # Two first users of one database would both create its tables.
        with alone_at(self._uri, lock=home.root / ".mlflow.lock"):
            self._client = ReachedClient(self._uri)
            self._client.search_experiments(max_results=1)

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
