from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.model.facts import _loading, facts_gates, file_megabytes, measure_facts
from pipeline.model.gate_inputs import ODD_TEXTS, odd_windows, random_windows
from schemas.bundle import MODEL_FILE, VariantFacts
from schemas.task import CompressConfig

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pipeline.model.labelled import Example
    from schemas.task import TaskConfig


def test_facts_are_of_the_file_and_of_a_process_of_its_own(
    tiny_bundle: Path, toy_examples: list[Example]
) -> None:
    path = tiny_bundle / MODEL_FILE
    windows = [example.windows[0] for example in toy_examples[:20]]
    (found,) = measure_facts({"fp32": path}, windows).values()
    assert found.megabytes == path.stat().st_size / 1e6
    assert found.p95_ms is not None
    assert 0 < found.p95_ms < 1000
    assert found.windows_per_s > 1000 / found.p95_ms / 2
    assert found.load_ms is not None
    assert found.load_ms > 0
    assert found.resident_mib is not None
    assert 20 < found.resident_mib < 500  # of a process that has torch or a tokenizer it is more


def test_a_process_that_fails_leaves_its_facts_open(
    tiny_bundle: Path, toy_examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.model.facts._LOADING", "raise SystemExit(3)")
    path, windows = tiny_bundle / MODEL_FILE, toy_examples[0].windows
    (found,) = measure_facts({"fp32": path}, windows).values()
    assert (found.load_ms, found.resident_mib) == (None, None)
    assert found.windows_per_s > 0


def test_weights_beside_the_graph_count(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"1" * 1000)
    (tmp_path / "model.onnx.data").write_bytes(b"1" * 9000)
    assert file_megabytes(tmp_path / "model.onnx") == 0.01


def test_size_and_speed_are_gates_only_where_the_task_says_so() -> None:
    facts = {
        "fp32": VariantFacts(megabytes=40, windows_per_s=100),
        "int8_static": VariantFacts(megabytes=10, windows_per_s=150),
    }
    assert facts_gates(facts, CompressConfig()) == []
    bounded = CompressConfig(max_file_mb=20, min_speedup=2.0)
    assert [str(gate) for gate in facts_gates(facts, bounded)] == [
        "fp32 file_mb: 40 <= 20 FAILED",
        "int8_static file_mb: 10 <= 20 passed",
        "int8_static speedup: 1.5 >= 2 FAILED",
    ]


def test_our_own_windows_are_made_as_the_tasks_windows_are(
    tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    odd = odd_windows(ODD_TEXTS, tokenizer, tiny_task)
    assert len(odd) == len(ODD_TEXTS)
    assert max(window.n_tokens for window in odd) <= tiny_task.window.max_tokens
    assert odd[0].input_ids == (2, 3, 3)  # [CLS] [SEP] [SEP]: an empty text in both columns
    drawn = random_windows(tokenizer, tiny_task, seed=1)
    assert [window.n_tokens for window in drawn] == [4, 4, 4, 7, 16, 32]
    assert drawn == random_windows(tokenizer, tiny_task, seed=1)
    assert drawn != random_windows(tokenizer, tiny_task, seed=2)


def test_models_are_loaded_each_by_itself_and_one_that_cannot_be_stops_no_other(
    tiny_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound, missing = (
        tmp_path / "broken.onnx", tiny_bundle / MODEL_FILE, tmp_path / "missing.onnx",
    )  # fmt: skip
    broken.write_bytes(b"no graph")
    found = _loading([broken, sound, missing])
    assert found[sound]["load_ms"] > 0
    assert found[broken] == found[missing] == {}
    assert "loading broken.onnx, missing.onnx could not be measured" in caplog.text
