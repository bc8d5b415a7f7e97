"""Teachers: record texts into logits of the student's heads, whatever they read texts with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.engines.host import usable_cpus
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import windows_of
from pipeline.heads import head_slices
from pipeline.model.checkpoint import load_checkpoint
from pipeline.model.outputs import run_encoder
from pipeline.model.record_logits import record_logits
from pipeline.prompt import prompted
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.distilled import TeacherRef
    from schemas.head import HeadConfig
    from schemas.task import TaskConfig

Logits = npt.NDArray[np.float32]
_SHOWN_LABELS = 5


class Teacher(Protocol):
    """Whoever can answer a task's heads."""

    def logits(self, examples: Sequence[Example]) -> Logits:
        """Logits `(N, L)` of records in the order of the student's heads, from their texts."""


@dataclass(frozen=True)
class TeacherSource:
    """Where a teacher lies: `bundle` as it ships, else `checkpoint`; one may have both.

    `task` is what it was trained as.
    """

    ref: TeacherRef
    task: TaskConfig
    bundle: Path | None = None
    checkpoint: Path | None = None

    @property
    def tokenizer(self) -> Path:
        """Its tokenizer's file."""
        return (self.bundle or self.checkpoint_folder) / TOKENIZER_FILE

    @property
    def checkpoint_folder(self) -> Path:
        """Where its weights lie in PyTorch's form.

        Raises:
            ArtifactError: they are not in this home.
        """
        if self.checkpoint is None:
            raise ArtifactError(
                f"teacher {self.ref.address}: its training run is not in this home, but layers of "
                f"it are asked for; name one by run:NAME, or leave out distil.student, hidden and "
                f"relations"
            )
        return self.checkpoint

    def model(self) -> Classifier:
        """The teacher in PyTorch's form, in evaluation.

        Raises:
            ArtifactError: see `checkpoint_folder` and `load_checkpoint`.
        """
        heads = head_slices(self.task.heads)
        return load_checkpoint(self.checkpoint_folder, self.task.train, heads)


class ReadingTeacher:
    """A teacher that reads cleaned texts through its own tokenizer, prompt and windows.

    Raises:
        ConfigError: its heads, labels or columns are not those that the student has to learn.
        ArtifactError: its files are missing or damaged.
    """

    def __init__(self, source: TeacherSource, student: TaskConfig) -> None:
        self._source = source
        self._columns = head_columns(source, student)
        self._tokenizer = BackboneTokenizer(source.tokenizer)
        self._reader = prompted(self._tokenizer, source.task.prompt)
        self._engine: Any = (
            source.model() if source.bundle is None
            else OnnxEncoder(source.bundle / MODEL_FILE, threads=usable_cpus())
        )  # fmt: skip

    def logits(self, examples: Sequence[Example]) -> Logits:
        """See `Teacher`.

        Raises:
            ArtifactError: it gives NaN or infinity.
        """
        read, how = [self._read(example) for example in examples], self._source.task.train
        if self._source.bundle is None:
            found = record_logits(
                self._engine, read, pad_id=self._tokenizer.pad_id, how=how.window_pooling
            )
        else:
            outputs = run_encoder(self._engine, read, pooling=how.window_pooling)
            found = outputs.pooled_logits().astype(np.float32)
        if not np.isfinite(found).all():
            raise ArtifactError(
                f"teacher {self._source.ref.address}: answered NaN or infinity; take another one"
            )
        return found[:, self._columns]

    def _read(self, example: Example) -> Example:
        task = self._source.task
        windows = windows_of(example.texts, self._reader, task.window).windows
        return replace(
            example, windows=windows[:1] if task.train.window_pooling == "first" else windows
        )


def head_columns(source: TeacherSource, student: TaskConfig) -> list[int]:
    """Columns of the teacher's logits in the order of the student's heads and their scores.

    The teacher may have more heads, and its labels another order.

    Raises:
        ConfigError: it lacks a head, or has other labels or another kind of it; or reads others of
            a record's columns.
    """
    theirs, address = source.task, source.ref.address
    if theirs.data.text_columns != student.data.text_columns:
        raise ConfigError(
            f"teacher {address}: reads columns {list(theirs.data.text_columns)}, expected "
            f"{list(student.data.text_columns)}; take another teacher, or change data.text_columns"
        )
    slices = {head.name: head for head in head_slices(theirs.heads)}
    columns: list[int] = []
    for name, head in student.heads.items():
        if name not in slices:
            raise ConfigError(
                f"teacher {address}: has heads {list(slices)}, expected {name!r} among them; take "
                f"another teacher, or leave the head out of the task"
            )
        _check_head(address, name, slices[name].config, head)
        place = {score: at for at, score in enumerate(slices[name].config.score_names)}
        columns += [slices[name].start + place[score] for score in head.score_names]
    return columns


def _check_head(address: str, name: str, theirs: HeadConfig, mine: HeadConfig) -> None:
    if theirs.kind != mine.kind:
        raise ConfigError(
            f"teacher {address}: head {name!r} is of kind {theirs.kind!r}, expected "
            f"{mine.kind!r}; take another teacher, or change heads.{name}.kind"
        )
    lacking = sorted({*mine.score_names} - {*theirs.score_names})
    beyond = sorted({*theirs.score_names} - {*mine.score_names})
    if lacking or beyond:
        raise ConfigError(
            f"teacher {address}: head {name!r} has other labels: it lacks {_listed(lacking)} and "
            f"has {_listed(beyond)} beyond the task's; take another teacher, or make the labels of "
            f"heads.{name} the same"
        )


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(label) for label in labels[:_SHOWN_LABELS]) or "none"
    left = len(labels) - _SHOWN_LABELS
    return shown if left <= 0 else f"{shown} and {left} more"
