"""The steps of a training run as children of its MLflow run: a tree that tells of a model."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from pipeline.engines.mlflow_client import ReachedClient
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.home import Home

STEP_TAG = "nightmill.step"
KEY_TAG = "nightmill.step_key"
_MAX_PARAM_CHARS = 500
_MAX_TAG_CHARS = 5000  # of MLflow
_DIGEST_CHARS = 12


@dataclass(frozen=True)
class DataUsed:
    """Files, or a model that is asked like a data set, by digest; `role` is what for."""

    name: str
    digest: str
    role: str
    rows: int | None = None


@dataclass(frozen=True)
class Step:
    """One step as it ended: what it was told, what it gave, and what it read.

    Whether it is the same step as one before is told by `params`, `tags` and `data`.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataUsed, ...] = ()
    seconds: float | None = None

    @property
    def key(self) -> str:
        """Hash over what makes it another step."""
        data = [[used.name, used.digest, used.role] for used in self.data]
        params = {name: str(value) for name, value in self.params.items()}
        return digest_of([self.name, params, dict(self.tags), data])[:16]


class StepRuns:
    """Children of MLflow runs at the home's tracking address, whose tables must be there."""

    def __init__(self, home: Home) -> None:
        self._uri = home.tracking_uri
        self._client = ReachedClient(self._uri)

    def log(self, parent_id: str, step: Step) -> str:
        """The child's run id; the same step again is the same child, and completes it.

        Raises:
            TransientError, ConfigError: MLflow does not answer, or refuses to.
        """
        parent = self._client.get_run(parent_id)
        experiment = parent.info.experiment_id
        found = self._client.search_runs(
            [experiment],
            filter_string=f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent_id}' "
            f"and tags.`{KEY_TAG}` = '{step.key}'",
            max_results=1,
        )
        if found and found[0].info.status == "FINISHED":
            return str(found[0].info.run_id)
        run_id = str(found[0].info.run_id) if found else self._create(experiment, parent_id, step)
        self._fill(run_id, step)
        self._client.set_terminated(run_id)
        return run_id

    def page(self, run_id: str) -> str:
        """Where a run is to be seen, without credentials; "" where no server shows it."""
        address = urlsplit(self._uri)
        if address.scheme not in ("http", "https"):
            return ""
        experiment = self._client.get_run(run_id).info.experiment_id
        place = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path.rstrip('/')}"
        return f"{place}/#/experiments/{experiment}/runs/{run_id}"

    def _create(self, experiment: str, parent_id: str, step: Step) -> str:
        tags = {MLFLOW_PARENT_RUN_ID: parent_id, STEP_TAG: step.name, KEY_TAG: step.key}
        # It is logged when it has ended, so its beginning is reckoned.
        began_ms = int((time.time() - (step.seconds or 0.0)) * 1000)
        created = self._client.create_run(
            experiment, start_time=began_ms, run_name=step.name, tags=tags
        )
        return str(created.info.run_id)

    def _fill(self, run_id: str, step: Step) -> None:
        params = [Param(name, str(value)[:_MAX_PARAM_CHARS]) for name, value in step.params.items()]
        metrics = [Metric(name, value, 0, 0) for name, value in step.metrics.items()]
        tags = [RunTag(name, text[:_MAX_TAG_CHARS]) for name, text in step.tags.items()]
        self._client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
        if step.data:
            self._client.log_inputs(run_id, [_input(used) for used in step.data])


def _input(used: DataUsed) -> DatasetInput:
    dataset = Dataset(
        name=used.name, digest=used.digest[:_DIGEST_CHARS], source_type="local", source=used.name,
        profile=None if used.rows is None else f'{{"rows": {used.rows}}}',
    )  # fmt: skip
    return DatasetInput(dataset=dataset, tags=[InputTag("mlflow.data.context", used.role)])
