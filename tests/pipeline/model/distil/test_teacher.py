"""Teachers read a record's texts their own way and answer the student's heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline.bundle import text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier, save_checkpoint
from pipeline.model.distil.teacher import ReadingTeacher, TeacherSource, head_columns
from pipeline.model.labelled import Example
from pipeline.model.record_logits import record_logits
from pipeline.rows import RawRow
from schemas.distilled import TeacherRef
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

REF = TeacherRef(address="run:tiny/big", digest="d" * 64)
BODIES = ["the invoice was late again", " ".join(["app", "error", "crash", "login"] * 15)]


@pytest.fixture
def examples(tiny_task: TaskConfig, tiny_tokenizer_path: Path) -> list[Example]:
    """Two records as the tiny tokenizer cuts them: of one window, and of several."""
    flow = text_flow(tiny_task, BackboneTokenizer(tiny_tokenizer_path))
    made = []
    for row, body in enumerate(BODIES):
        values = {"ticket_id": f"t{row}", "subject": "help", "body": body}
        (item,) = flow.prepare([RawRow("f", row, values, b"")])
        made.append(
            Example(f"t{row}", item.text_hash, "train", "en", item.texts,
                    flow.windows(item).windows, {"queue": None, "topics": None})
        )  # fmt: skip
    assert [len(example.windows) > 1 for example in made] == [False, True]
    return made


@pytest.fixture
def checkpoint(tiny_task: TaskConfig, tiny_tokenizer_path: Path, tmp_path: Path) -> TeacherSource:
    model = new_classifier(tiny_task.train, head_slices(tiny_task.heads))
    save_checkpoint(model, tmp_path / "big", tokenizer=tiny_tokenizer_path)
    return TeacherSource(REF, tiny_task, checkpoint=tmp_path / "big")


def test_a_checkpoint_and_the_bundle_of_its_weights_say_the_same(
    checkpoint: TeacherSource, tiny_task: TaskConfig, tiny_bundle: Path, examples: list[Example]
) -> None:
    bundle = TeacherSource(REF, tiny_task, bundle=tiny_bundle)
    one = ReadingTeacher(checkpoint, tiny_task).logits(examples)
    other = ReadingTeacher(bundle, tiny_task).logits(examples)
    assert one.shape == (2, 5)
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_records_are_aligned_across_tokenizers(
    checkpoint: TeacherSource, tiny_task: TaskConfig, examples: list[Example], tmp_path: Path
) -> None:
    """The student's windows do not matter: the teacher reads the texts, and pools its own."""
    wanted = record_logits(checkpoint.model(), examples, pad_id=0)
    strangers = [replace(example, windows=examples[0].windows[:1]) for example in examples]
    np.testing.assert_allclose(
        ReadingTeacher(checkpoint, tiny_task).logits(strangers), wanted, atol=1e-5
    )
    # Through a tokenizer that does not know a word the same text is read otherwise.
    tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer))
    text = tokenizer.to_str().replace('"invoice"', '"inv01ce"')
    checkpoint.tokenizer.write_text(text)
    other = ReadingTeacher(checkpoint, tiny_task).logits(strangers)
    assert np.abs(other[0] - wanted[0]).max() > 1e-3
    np.testing.assert_allclose(other[1], wanted[1], atol=1e-5)


def changed(task: TaskConfig, head: str, **changes: Any) -> TaskConfig:
    heads = task.heads | {head: task.heads[head].model_copy(update=changes)}
    return task.model_copy(update={"heads": heads})


def test_more_heads_and_another_order_of_labels_are_no_obstacle(
    checkpoint: TeacherSource, tiny_task: TaskConfig
) -> None:
    swapped = changed(tiny_task, "queue", labels=("shipping", "billing", "technical"))
    assert head_columns(checkpoint, swapped) == [2, 0, 1, 3, 4]
    heads = {"topics": tiny_task.heads["topics"]}
    assert head_columns(checkpoint, tiny_task.model_copy(update={"heads": heads})) == [3, 4]


def test_what_differs_is_named_with_head_and_labels(
    checkpoint: TeacherSource, tiny_task: TaskConfig
) -> None:
    other = changed(tiny_task, "queue", labels=("billing", "technical", "sales"))
    with pytest.raises(
        ConfigError,
        match=r"run:tiny/big: head 'queue' has other labels: it lacks 'sales' and has 'shipping'",
    ):
        ReadingTeacher(checkpoint, other)
    with pytest.raises(ConfigError, match=r"head 'topics' is of kind 'multi', expected 'single'"):
        head_columns(checkpoint, changed(tiny_task, "topics", kind="single"))
    heads = tiny_task.heads | {"tone": tiny_task.heads["queue"]}
    with pytest.raises(ConfigError, match=r"has heads \['queue', 'topics'\], expected 'tone'"):
        head_columns(checkpoint, tiny_task.model_copy(update={"heads": heads}))
    data = tiny_task.data.model_copy(update={"text_columns": ("body",)})
    with pytest.raises(ConfigError, match=r"reads columns \['subject', 'body'\], expected"):
        head_columns(checkpoint, tiny_task.model_copy(update={"data": data}))


def test_layers_of_a_teacher_that_is_not_here_are_refused(
    tiny_task: TaskConfig, tiny_bundle: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"its training run is not in this home"):
        TeacherSource(REF, tiny_task, bundle=tiny_bundle).model()
