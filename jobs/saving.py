"""What saves a run inference, found before its workers start: kept answers, a small model."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pipeline.bundle import fitting_text_flow
from pipeline.cascade import Cascade, Saving
from schemas.cascade import CascadeSpec
from schemas.errors import ArtifactError, ConfigError
from schemas.manifest import CascadeRef

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.engines.registry import Registry
    from schemas.bundle import BundleSpec
    from schemas.home import Home
    from schemas.manifest import ModelRef
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


def cascade_path(home: Home, task: str, *, small: ModelRef, large: ModelRef) -> Path:
    """Where the measurement of two models lies."""
    name = f"{large.digest[:16]}-{small.digest[:16]}.json"
    return home.cascades(task) / name


def find_saving(
    task: TaskConfig, registry: Registry, large: ModelRef, spec: BundleSpec, *,
    home: Home, dates: Sequence[dt.date],
) -> Saving:  # fmt: skip
    """The cache and the cascade that a task asks for.

    Raises:
        ArtifactError: see `find_cascade`.
        ConfigError: a cache is asked for beside a GPU.
    """
    cache = task.score.cache.enabled
    if cache and task.score.device == "gpu":
        raise ConfigError(
            "score.cache.enabled is for score.device=cpu: the low bits of a GPU's scores follow "
            "the batch, so a kept score could differ from the one it stands for"
        )
    return Saving(
        cache=home.cache(task.name) if cache else None,
        night=max(dates).isoformat(),
        cascade=find_cascade(task, registry, large, spec, home=home),
    )


def find_cascade(
    task: TaskConfig, registry: Registry, large: ModelRef, spec: BundleSpec, *, home: Home
) -> Cascade | None:
    """The cascade that a task asks for, None where it asks for none.

    Raises:
        ArtifactError: the small model does not fit, or the two were not measured together for the
            loss that the task allows.
    """
    config = task.score.cascade
    if config is None:
        return None
    small, bundle = fetch_small(task, registry, spec)
    again = f"`nightmill cascade {task.name}` measures them"
    path = cascade_path(home, task.name, small=small, large=large)
    if not path.exists():
        raise ArtifactError(
            f"models {small.name}/{small.version} ({small.digest[:12]}) and {large.name}/"
            f"{large.version} ({large.digest[:12]}) were not measured together; {again}"
        )
    measured = CascadeSpec.read(path)
    digests = (measured.small.digest, measured.large.digest)
    if digests != (small.digest, large.digest) or set(measured.thresholds) != set(task.heads):
        raise ArtifactError(f"{path} is of other models or heads; {again}")
    if measured.max_metric_loss > config.max_metric_loss:
        raise ArtifactError(
            f"the cascade's thresholds allow a loss of {measured.max_metric_loss}, the task one of "
            f"{config.max_metric_loss}; {again} again"
        )
    log.info(
        "cascade: %s version %s (%s) answers first, on validation %.0f %% of the texts",
        small.name, small.version, small.digest[:12], 100 * measured.valid.share_of_small,
    )  # fmt: skip
    return Cascade(CascadeRef(small=small, thresholds=measured.thresholds), bundle)


def fetch_small(task: TaskConfig, registry: Registry, large: BundleSpec) -> tuple[ModelRef, Path]:
    """The small model of a task's cascade and its bundle.

    Raises:
        ArtifactError: it does not fit the task, cleans texts in another way than the large one, or
            is the large one.
        ConfigError: the task has no cascade.
    """
    if task.score.cascade is None:
        raise ConfigError(
            "the task has no cascade; score.cascade.model=models:/NAME/VERSION names the small "
            "model"
        )
    small, bundle = registry.fetch(task.score.cascade.model)
    spec, _ = fitting_text_flow(bundle, task)
    if spec.digest == large.digest:
        raise ArtifactError(
            f"score.cascade.model {task.score.cascade.model} is the task's own model; name a "
            f"smaller one"
        )
    if spec.cleaner_version != large.cleaner_version:
        raise ArtifactError(
            f"the small model cleans texts as {spec.cleaner_version}, the large one as "
            f"{large.cleaner_version}: their backbones have other control tokens; train the small "
            f"one on a backbone of the same family"
        )
    return small, bundle
