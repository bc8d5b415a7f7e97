"""Teachers by address: a training run of this home, or a registered bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.bundle import load_spec
from pipeline.engines.registry import Registry
from pipeline.model.checkpoint import HEADS_FILE
from pipeline.model.distil.teacher import TeacherSource
from schemas.bundle import BUNDLE_FILE, TOKENIZER_FILE, BundleSpec
from schemas.distilled import TeacherRef
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of, digest_of_file
from schemas.manifest import write_atomically
from schemas.task import TaskConfig
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home


def find_teacher(address: str, task: str, home: Home) -> TeacherSource:
    """The teacher behind `run:NAME`, `run:TASK/NAME` or a bundle's address, and its digest.

    Raises:
        ArtifactError: there is no such run or model, or its files are missing or damaged.
    """
    if address.startswith("run:"):
        owner, _, name = address.removeprefix("run:").rpartition("/")
        return _of_run(TrainingRun(home, owner or task, name), owner or task)
    ref, folder = Registry(home).fetch(address)
    spec = load_spec(folder)
    return TeacherSource(
        TeacherRef(address=ref.address(local=address), digest=ref.digest),
        spec.task,
        bundle=folder,
        checkpoint=_checkpoint_of(spec, home),
    )


def keep_settings(task: TaskConfig, place: TrainingRun) -> None:
    """Leaves in a run's folder what it was trained as, so that it can teach later on."""
    write_atomically(place.settings, task.model_dump_json(indent=2).encode())


def _of_run(place: TrainingRun, task: str) -> TeacherSource:
    place.finetuned()
    files = sorted(path for path in place.checkpoint.glob("*") if path.is_file())
    digest = digest_of([[path.name, digest_of_file(path)] for path in files])
    return TeacherSource(
        TeacherRef(address=f"run:{task}/{place.name}", digest=digest),
        _settings_of(place),
        checkpoint=place.checkpoint,
    )


def _settings_of(place: TrainingRun) -> TaskConfig:
    if place.settings.exists():
        return TaskConfig.model_validate_json(place.settings.read_bytes())
    if (bundle := place.bundle / BUNDLE_FILE).exists():  # of a run from before they were kept
        return BundleSpec.read(bundle).task
    raise ArtifactError(
        f"teacher run {place.name!r}: its settings were not kept; run `nightmill bundle` for it, "
        f"or train it again"
    )


def _checkpoint_of(spec: BundleSpec, home: Home) -> Path | None:
    """The weights behind a bundle, where its training run is in this home."""
    place = TrainingRun(home, spec.task.name, spec.training_run)
    try:
        is_same = place.finetuned().data_digest == spec.data_digest
    except ArtifactError:
        return None
    tokenizer = place.checkpoint / TOKENIZER_FILE
    if not is_same or not (place.checkpoint / HEADS_FILE).is_file() or not tokenizer.is_file():
        return None
    fits = digest_of_file(tokenizer) == spec.files[TOKENIZER_FILE]
    return place.checkpoint if fits else None
