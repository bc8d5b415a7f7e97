"""Teachers are asked once, and again only where another one, or another text, is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.model.distil.answers import AnswerFile
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pipeline.model.distil.teacher import Logits
    from pipeline.model.labelled import Example
    from schemas.task import TaskConfig


class CountingTeacher:
    """Answers the number in a record's id, and notes whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def logits(self, examples: Sequence[Example]) -> Logits:
        self.asked += [example.record_id for example in examples]
        rows = [[float(example.record_id[1:])] * 5 for example in examples]
        return np.array(rows, dtype=np.float32)


@pytest.fixture
def examples(make_example: Callable[..., Example]) -> list[Example]:
    return [make_example(f"r{row}", seed=row) for row in range(4)]


def test_answers_are_kept_by_record_and_asked_once(
    tmp_path: Path, tiny_task: TaskConfig, examples: list[Example]
) -> None:
    file, teacher = tmp_path / "t.parquet", CountingTeacher()
    one = AnswerFile(file, digest="d", heads=tiny_task.heads)
    assert one.ask(teacher, examples[:3])[:, 0].tolist() == [0, 1, 2]
    again = AnswerFile(file, digest="d", heads=tiny_task.heads)
    # In the order that is asked for, and only what is new is asked.
    assert again.ask(teacher, examples[::-1])[:, 4].tolist() == [3, 2, 1, 0]
    assert teacher.asked == ["r0", "r1", "r2", "r3"]
    assert again.read(examples[1:3])[:, 0].tolist() == [1, 2]
    table = pq.read_table(file)
    assert table.column_names == ["record_id", "text_hash", "logits"]
    assert str(table.schema.field("logits").type.value_type) == "float"


def test_another_teacher_another_text_or_other_labels_are_asked_anew(
    tmp_path: Path, tiny_task: TaskConfig, examples: list[Example]
) -> None:
    file = tmp_path / "t.parquet"
    AnswerFile(file, digest="d", heads=tiny_task.heads).ask(CountingTeacher(), examples)
    other = CountingTeacher()
    AnswerFile(file, digest="e", heads=tiny_task.heads).ask(other, examples[:1])
    assert other.asked == ["r0"]
    changed = replace(examples[0], text_hash="f" * 32)
    AnswerFile(file, digest="e", heads=tiny_task.heads).ask(other, [changed, examples[0]])
    assert other.asked == ["r0", "r0"]
    queue = tiny_task.heads["queue"]
    heads = tiny_task.heads | {"queue": queue.model_copy(update={"labels": queue.labels[::-1]})}
    AnswerFile(file, digest="e", heads=heads).ask(other, examples[:1])
    assert other.asked == ["r0"] * 3


def test_a_record_that_nobody_was_asked_about_is_named(
    tmp_path: Path, tiny_task: TaskConfig, examples: list[Example]
) -> None:
    kept = AnswerFile(tmp_path / "t.parquet", digest="d", heads=tiny_task.heads)
    kept.ask(CountingTeacher(), examples[:1])
    with pytest.raises(ArtifactError, match=r"no answer for record r1; remove the file"):
        kept.read(examples)
