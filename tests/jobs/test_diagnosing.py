"""The facts that a run's diagnosis is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs import diagnosing
from jobs.diagnosing import DIAGNOSIS_FILE, diagnose_run
from pipeline.model.findings import Diagnosis
from pipeline.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

UNKNOWN = 1


def example(split: str, *windows: tuple[int, ...]) -> SimpleNamespace:
    return SimpleNamespace(split=split, windows=[Window(ids, (), 0, 0) for ids in windows])


@pytest.mark.parametrize(
    ("unk_id", "kinds"), [(UNKNOWN, "unknown_words"), (None, "none"), (9, "none")]
)
def test_tokens_that_are_unknown_are_counted_in_all_windows_of_training_texts(
    unk_id: int | None,
    kinds: str,
    tiny_task: TaskConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = SimpleNamespace(suspects=(), counts={}, judged={}, agreement={})
    for name, answer in (
        ("load_checkpoint", None), ("record_logits", None), ("find_label_errors", check),
        ("save_suspects", None), ("head_answers", []),
    ):  # fmt: skip
        monkeypatch.setattr(diagnosing, name, lambda *_, answer=answer, **__: answer)
    data: Any = SimpleNamespace(
        examples=[
            example("train", (2, 5, 5, 5, 3), (2, 5, UNKNOWN, 5, 3)),
            example("valid", *[(9,) * 50] * 2),
        ],
        rows={}, leakage=SimpleNamespace(counts={}),
    )  # fmt: skip
    place: Any = SimpleNamespace(folder=tmp_path, checkpoint=tmp_path)
    tokenizer: Any = SimpleNamespace(pad_id=0, unk_id=unk_id)
    found = diagnose_run(tiny_task, place, data, history=[], tokenizer=tokenizer)
    assert found.tag == kinds
    assert Diagnosis.read(tmp_path / DIAGNOSIS_FILE) == found
    if found.findings:
        assert "10.0% of the training" in found.findings[0].evidence
