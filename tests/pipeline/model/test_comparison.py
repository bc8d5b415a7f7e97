"""The champion on the same records: what is compared, what is not, and what is chance."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pipeline.bundle import load_spec
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import HeadSlice
from pipeline.model.bundling import Bundled
from pipeline.model.comparison import compare_with_champion, paired_result
from pipeline.model.outputs import run_encoder
from pipeline.window import make_windows
from schemas.bundle import BUNDLE_FILE
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.labelled import Example

HEAD = HeadSlice("q", HeadConfig(column="q", labels=("a", "b")), 0)


def test_a_clear_gain_is_better_and_the_reverse_worse() -> None:
    truth = np.array([0, 1] * 50)
    champion = truth.copy()
    champion[:30] = 1 - champion[:30]
    new = truth.copy()
    new[:10] = new[30:32] = 1 - truth[0]  # half of the ten, one of the two
    found = paired_result(truth, new, champion, HEAD, seed=1)
    assert found.rows == 100
    assert found.accuracy == 0.7
    assert (found.only_new, found.only_champion) == (25, 1)
    assert found.accuracy_gain == pytest.approx(0.24)
    low, high = found.accuracy_gain_interval
    assert 0.13 < low < 0.24 < high < 0.35
    # 2 * (1 + 26) / 2**26
    assert found.p_value == pytest.approx(54 / 2**26)
    assert found.verdict == "better"
    assert paired_result(truth, champion, new, HEAD, seed=1).verdict == "worse"


def test_equal_models_do_not_differ() -> None:
    truth = np.array([0, 1] * 10)
    found = paired_result(truth, truth, truth, HEAD, seed=1)
    assert (found.accuracy_gain, found.p_value, found.macro_f1) == (0.0, 1.0, 1.0)
    assert found.macro_f1_gain_interval == (0.0, 0.0)
    assert found.verdict == "no clear difference"


@pytest.fixture
def bundled(tiny_bundle: Path, make_example: Callable[..., Example]) -> Bundled:
    """The tiny bundle as a new model, with 40 test records read through its own tokenizer."""
    spec = load_spec(tiny_bundle)
    tokenizer = BackboneTokenizer(tiny_bundle / "tokenizer.json")
    test = []
    for number in range(40):
        texts = ("refund", f"the app is slow {number} please help")
        windows = make_windows(
            tokenizer.tokenize(list(texts)), texts, template=tokenizer.pair,
            config=spec.task.window,
        ).windows  # fmt: skip
        made = make_example(f"r{number}", queue=number % 3, topics=(number % 2, 1), split="test")
        test.append(replace(made, texts=texts, windows=windows))
    outputs = run_encoder(OnnxEncoder(tiny_bundle / "model.onnx"), test)
    return Bundled(spec, outputs, test)


def champion(tiny_bundle: Path, folder: Path, **changes: Any) -> Path:
    """The same weights as another bundle."""
    shutil.copytree(tiny_bundle, folder)
    changed = {"temperatures": {"queue": 3.0, "topics": 1.0}, **changes}
    load_spec(folder).model_copy(update=changed).write(folder / BUNDLE_FILE)
    return folder


def test_the_champion_answers_the_same_records(
    bundled: Bundled, tiny_bundle: Path, tmp_path: Path
) -> None:
    folder = champion(tiny_bundle, tmp_path / "other")
    found = compare_with_champion(bundled, folder, version="4")
    assert (found.version, found.notes) == ("4", ())
    assert list(found.heads) == ["queue", "topics"]
    # A temperature changes no order of labels, so that both answer alike.
    assert [head.rows for head in found.heads.values()] == [40, 40]
    assert all(head.macro_f1_gain == 0 for head in found.heads.values())
    assert all(head.only_new == head.only_champion == 0 for head in found.heads.values())


def test_the_champion_reads_texts_through_its_own_windows(
    bundled: Bundled, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    logits = OnnxEncoder.logits

    def note(self: OnnxEncoder, windows: Any) -> Any:
        seen.extend(window.n_tokens for window in windows)
        return logits(self, windows)

    monkeypatch.setattr(OnnxEncoder, "logits", note)
    task = bundled.spec.task
    narrow = task.window.model_copy(update={"max_tokens": 8, "stride_tokens": 2})
    folder = champion(
        tiny_bundle, tmp_path / "other", task=task.model_copy(update={"window": narrow})
    )
    found = compare_with_champion(bundled, folder, version="4")
    assert found.heads["queue"].rows == 40
    assert len(seen) > 40  # a text of more than 8 tokens has several
    assert max(seen) == 8
    assert max(window.n_tokens for one in bundled.test for window in one.windows) > 8


def test_the_same_model_is_not_compared_with_itself(bundled: Bundled, tiny_bundle: Path) -> None:
    found = compare_with_champion(bundled, tiny_bundle, version="4")
    assert (found.heads, found.notes) == ({}, ("This model is the champion.",))


def test_another_cleaner_is_not_compared(
    bundled: Bundled, tiny_bundle: Path, tmp_path: Path
) -> None:
    folder = champion(tiny_bundle, tmp_path / "other", cleaner_version="0-other")
    found = compare_with_champion(bundled, folder, version="4")
    assert found.heads == {}
    assert found.notes == (
        "It reads other columns or cleans texts in another way, so it was not compared.",
    )


def test_a_head_that_differs_is_left_out_with_a_note(
    bundled: Bundled, tiny_bundle: Path, tmp_path: Path
) -> None:
    task = bundled.spec.task
    topics = task.heads["topics"].model_copy(update={"labels": ("quality", "price")})
    other = task.model_copy(update={"heads": {**task.heads, "topics": topics}})
    digests = {name: labels.digest for name, labels in other.label_sets.items()}
    folder = champion(tiny_bundle, tmp_path / "other", task=other, label_digests=digests)
    found = compare_with_champion(bundled, folder, version="4")
    assert list(found.heads) == ["queue"]
    assert found.notes == ("Head 'topics' differs.",)


def test_a_champion_that_was_split_in_another_way_is_flattered(
    bundled: Bundled, tiny_bundle: Path, tmp_path: Path
) -> None:
    task = bundled.spec.task
    train = task.train.model_copy(update={"seed": 99})
    other = task.model_copy(update={"train": train})
    folder = champion(tiny_bundle, tmp_path / "other", task=other)
    (note,) = compare_with_champion(bundled, folder, version="4").notes
    assert "it has learnt from some of these" in note
