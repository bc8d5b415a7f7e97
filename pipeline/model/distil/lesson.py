"""What a training worker needs of its teachers, put together from what the driver left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file

from pipeline.heads import head_slices
from pipeline.model.backbone import check_length
from pipeline.model.checkpoint import HEADS_FILE, load_checkpoint, new_classifier
from pipeline.model.distil.answers import AnswerFile
from pipeline.model.distil.layer_match import LayerMatch
from pipeline.model.distil.soft_targets import SoftTargets
from pipeline.model.labelled import load_examples
from schemas.manifest import Document
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.extra_loss import ExtraLoss
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier

LESSON_FILE = "lesson.json"
_ANSWERS = "teacher-{number}.parquet"
_MORE = "taught.parquet"


def answer_file(folder: Path, number: int, *, digest: str, task: TaskConfig) -> AnswerFile:
    """Where the answers of a run's teacher `number` are kept."""
    path = folder / _ANSWERS.format(number=number)
    return AnswerFile(path, digest=digest, heads=task.heads)


def more_path(folder: Path) -> Path:
    """Where a run keeps the texts that only teachers answer."""
    return folder / _MORE


def more_examples(folder: Path, task: TaskConfig) -> list[Example]:
    """Training records without labels, which the teachers answer; none without teachers."""
    return [] if task.distil is None else load_examples(more_path(folder))


def read_lesson(folder: Path, task: TaskConfig) -> Lesson:
    """What the driver left; of a task that is not distilled a lesson without teachers.

    Raises:
        ArtifactError: it is missing.
    """
    return Lesson(digests=()) if task.distil is None else Lesson.read(folder / LESSON_FILE)


class Lesson(Document):
    """`lesson.json`: how a run's workers are taught.

    `digests` are the teachers'. The layers of the one in `followed_folder`, trained as
    `followed_task`, are matched. `initial` is what the student starts from in place of
    `train.backbone`.
    """

    digests: tuple[str, ...]
    followed_folder: str | None = None
    followed_task: TaskConfig | None = None
    initial: str | None = None

    def losses(
        self,
        task: TaskConfig,
        train: Sequence[Example],
        heads: tuple[HeadSlice, ...],
        *,
        folder: Path,
        pad_id: int,
    ) -> tuple[ExtraLoss, ...]:
        """The losses of `task.distil` over the training records `train`, in their order.

        Raises:
            ArtifactError: an answer is missing, or the followed teacher's files.
            ConfigError: the followed teacher cannot read windows as long.
        """
        config, made = task.distil, list[Any]()
        if config is None:
            return ()
        made += self.soft_targets(task, train, heads, folder=folder)
        if self.followed_folder is not None and self.followed_task is not None:
            theirs = self.followed_task
            teacher = load_checkpoint(
                Path(self.followed_folder), theirs.train, head_slices(theirs.heads)
            )
            check_length(
                teacher.encoder, max_tokens=task.window.max_tokens, setting="window.max_tokens"
            )
            made.append(LayerMatch(teacher, config, pad_id=pad_id, seed=task.train.seed))
        return tuple(made)

    def soft_targets(
        self,
        task: TaskConfig,
        train: Sequence[Example],
        heads: tuple[HeadSlice, ...],
        *,
        folder: Path,
    ) -> tuple[ExtraLoss, ...]:
        """The loss by what the teachers answer `train`, whatever layers the student has.

        None where the task is not distilled, or `distil.alpha` is 0.

        Raises:
            ArtifactError: an answer is missing.
        """
        if task.distil is None or not task.distil.alpha:
            return ()
        taught = [
            answer_file(folder, number, digest=digest, task=task).read(train)
            for number, digest in enumerate(self.digests)
        ]
        return (SoftTargets(torch.from_numpy(np.stack(taught)), heads, task.distil),)


def label_weight(task: TaskConfig) -> float:
    """How much labels count beside what teachers say."""
    return 1.0 if task.distil is None else 1.0 - task.distil.alpha


def new_student(task: TaskConfig, heads: tuple[HeadSlice, ...], lesson: Lesson) -> Classifier:
    """What training starts from: `train.backbone`, or what was made of another model's layers.

    Raises:
        ArtifactError, ConfigError: see `new_classifier`.
    """
    if lesson.initial is None:
        return new_classifier(task.train, heads)
    model = new_classifier(
        task.train.model_copy(update={"backbone": f"path:{lesson.initial}"}), heads
    )
    if (known := Path(lesson.initial) / HEADS_FILE).is_file():
        model.heads.load_state_dict(load_file(known))
    return model
