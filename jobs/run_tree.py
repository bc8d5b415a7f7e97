"""What each step of a training run was told and read, as a tree in MLflow.

The training run's own MLflow run is the root: it has all settings, figures and files, and the
registered model. Its children are the steps, each with its own settings and digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.bundle_difference import flatten
from pipeline.engines.model_version import CODE_TAG
from pipeline.engines.software import code_digest
from pipeline.engines.step_runs import DataUsed, Step, StepRuns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from jobs.teaching import Teaching
    from pipeline.survey import Survey
    from schemas.bundle import BundleSpec
    from schemas.home import Home
    from schemas.prune import Pruning
    from schemas.task import TaskConfig
    from schemas.training import Finetuned, Registered

_TRAINING = ("data", "contract", "clean", "heads", "window", "train")
_MAX_FILES = 50  # of one address; the run's data digest covers all
_PRUNE_FIGURES = ("flops_share", "valid_macro_f1_whole", "valid_macro_f1_cut", "valid_macro_f1")


def log_finetune(
    home: Home, task: TaskConfig, done: Finetuned, surveys: Mapping[str, Survey | None]
) -> None:
    """The step `finetune`: recipe, rows, and each file by role (`training`, `test`, `domain`)."""
    metrics = {f"rows.{split}": float(count) for split, count in done.rows.items()}
    step = Step(
        "finetune",
        params=flat(task, _TRAINING),
        metrics=metrics
        | {"valid_macro_f1": done.valid_macro_f1, "best_epoch": float(done.best_epoch)},
        tags={
            "data_digest": done.data_digest,
            "fingerprint": done.fingerprint,
            "cleaner_version": done.cleaner_version,
            CODE_TAG: code_digest(),
        },
        data=tuple(_files(surveys)),
        seconds=done.seconds,
    )
    StepRuns(home).log(done.mlflow_run_id, step)


def log_teach(home: Home, task: TaskConfig, done: Finetuned, teaching: Teaching) -> None:
    """The step `teach`: who taught, by exact address and digest, and how well they know it."""
    told = done.distilled
    if told is None:
        return
    teachers = [
        DataUsed(ref.address, ref.digest, f"teacher {n}") for n, ref in enumerate(told.teachers)
    ]
    metrics = {f"test.{name}.macro_f1": f1 for name, f1 in told.test_macro_f1.items()}
    step = Step(
        "teach",
        params=flat(task, ("distil",)),
        metrics=metrics
        | {
            "teacher_valid_macro_f1": told.teacher_valid_macro_f1,
            "student_valid_macro_f1": told.student_valid_macro_f1,
            "kept": told.kept,
            "unlabelled": float(told.unlabelled),
            "augmented": float(told.augmented),
        },
        tags={f"teacher.{n}": str(ref) for n, ref in enumerate(told.teachers)}
        | {"student": told.student or task.train.backbone},
        data=(*teachers, *_files({"unlabelled": teaching.unlabelled})),
    )
    StepRuns(home).log(done.mlflow_run_id, step)


def log_prune(home: Home, task: TaskConfig, parent_id: str, done: Pruning) -> None:
    """The step `prune`: what was asked for, and what it left and cost."""
    figures = done.after.model_dump() | done.model_dump(include=set(_PRUNE_FIGURES))
    step = Step(
        "prune",
        params=_compress(task, is_prune=True),
        metrics={name: float(value) for name, value in figures.items()},
        tags={"fingerprint": done.fingerprint},
        seconds=done.seconds,
    )
    StepRuns(home).log(parent_id, step)


def log_bundle(home: Home, parent_id: str, spec: BundleSpec) -> None:
    """The step `bundle`: how it was compressed, which variant ships, why, and how good it is."""
    metrics = {f"test.{name}.macro_f1": head.macro_f1 for name, head in spec.metrics.items()}
    metrics |= {f"test.{name}.accuracy": head.accuracy for name, head in spec.metrics.items()}
    if (facts := spec.facts.get(spec.variant)) is not None:
        metrics |= {name: float(value) for name, value in facts if value is not None}
    step = Step(
        "bundle",
        params=_compress(spec.task, is_prune=False),
        metrics=metrics
        | {
            "gates": float(len(spec.gates)),
            "gates_failed": float(sum(not gate.passed for gate in spec.gates)),
        },
        tags={"digest": spec.digest, "variant": spec.variant, "choice": spec.choice}
        | {f"sha256.{name}": digest for name, digest in spec.files.items()},
    )
    StepRuns(home).log(parent_id, step)


def log_register(home: Home, parent_id: str, done: Registered) -> None:
    """The step `register`: which version it became."""
    tags = {"model": done.name, "version": done.version, "digest": done.digest}
    StepRuns(home).log(parent_id, Step("register", tags=tags))


def run_page(home: Home, run_id: str) -> str:
    """Where a run is to be seen in MLflow; "" where no server shows it."""
    return StepRuns(home).page(run_id)


def flat(section: BaseModel, names: Sequence[str]) -> dict[str, Any]:
    """Dotted settings of some parts of a section, as MLflow parameters want them."""
    return flatten(section.model_dump(mode="json", include=set(names)))


def _compress(task: TaskConfig, *, is_prune: bool) -> dict[str, Any]:
    """Settings of pruning, or those of what comes after it."""
    settings = flat(task, ("compress",))
    return {
        name: value
        for name, value in settings.items()
        if name.startswith("compress.prune") == is_prune
    }


def _files(surveys: Mapping[str, Survey | None]) -> Iterable[DataUsed]:
    for role, survey in surveys.items():
        for file in () if survey is None else survey.inputs[:_MAX_FILES]:
            yield DataUsed(file.name, file.sha256, role, rows=file.rows)
