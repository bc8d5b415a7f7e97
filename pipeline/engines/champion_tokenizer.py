"""The tokenizer of the model that would score, where there is one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pipeline.engines.tokenizer import BackboneTokenizer
from schemas.bundle import TOKENIZER_FILE
from schemas.errors import ArtifactError, TransientError

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


def champion_tokenizer(task: TaskConfig, home: Home) -> BackboneTokenizer | None:
    """The tokenizer of the task's model, None before the first one or where it is out of reach."""
    if not _may_have_models(task, home):
        return None
    # MLflow takes seconds to import, and most first nights have no use for it.
    from mlflow.exceptions import MlflowException  # noqa: PLC0415

    from pipeline.engines.registry import Registry  # noqa: PLC0415

    try:
        _, bundle = Registry(home).fetch(task.model_uri)
        return BackboneTokenizer(bundle / TOKENIZER_FILE)
    except (ArtifactError, TransientError, MlflowException) as error:
        log.info("no tokenizer of %s: %s", task.model_uri, error)
        return None


def _may_have_models(task: TaskConfig, home: Home) -> bool:
    """Whether to ask at all: a registry in the home would be made by the question."""
    database = home.tracking_uri.removeprefix("sqlite:///")
    is_elsewhere = database == home.tracking_uri
    return is_elsewhere or task.model_uri.startswith("path:") or home.resolve(database).exists()
