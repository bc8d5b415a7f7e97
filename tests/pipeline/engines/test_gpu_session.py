"""A session on a GPU, as far as a host without one can tell: its buffers, checks and refusals."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest

from pipeline.bundle import scoring_flow
from pipeline.engines import gpu_session
from pipeline.engines.gpu_session import (
    CUDA_PROVIDER,
    GpuSession,
    check_gpu_runtime,
    gpu_encoder,
)
from pipeline.engines.onnx_session import CPU_PROVIDER, OnnxEncoder
from pipeline.model.quantize import prepare_for_quantization, quantize_to_dynamic
from pipeline.rows import RawRow
from pipeline.shaped_encoder import OutOfDeviceMemoryError, ShapedEncoder, shape_inputs
from pipeline.token_batches import Budget, Shape
from pipeline.window import Window
from schemas.bundle import MODEL_FILE
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.task import TaskConfig

BUDGET = Budget(max_batch_tokens=256, max_tokens=32)
WINDOWS = [
    Window((2, *range(5, 5 + length), 3), (0,) * (length + 2), 0, 1)
    for length in (1, 30, 3, 9, 30, 3, 17)
]


@pytest.fixture(scope="module")
def session(tiny_bundle: Path) -> GpuSession:
    """The session itself, with its buffers in ordinary memory."""
    return GpuSession(tiny_bundle / MODEL_FILE, provider=CPU_PROVIDER)


@pytest.fixture(scope="module")
def encoder(session: GpuSession) -> ShapedEncoder:
    return ShapedEncoder(session, BUDGET, pad_id=0, vocabulary_size=100)


@pytest.fixture
def cuda_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `gpu` was installed, and it alone."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA_PROVIDER, CPU_PROVIDER])
    monkeypatch.setattr(metadata, "version", wheels("onnxruntime-gpu"))
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)


def wheels(*installed: str) -> Callable[[str], str]:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1.32.0"

    return version


def test_logits_are_those_of_the_cpu_engine(encoder: ShapedEncoder, tiny_bundle: Path) -> None:
    expected = OnnxEncoder(tiny_bundle / MODEL_FILE).logits(WINDOWS)
    np.testing.assert_allclose(encoder.logits(WINDOWS), expected, atol=1e-5)


def test_failure_25_a_window_has_the_same_bytes_alone_and_among_others(
    encoder: ShapedEncoder,
) -> None:
    together = encoder.logits(WINDOWS)
    assert encoder.logits(WINDOWS[::-1])[::-1].tobytes() == together.tobytes()
    for row, window in zip(together, WINDOWS, strict=True):
        assert encoder.logits([window]).tobytes() == row.tobytes()
    assert not np.allclose(together[0], together[1], atol=1e-3)


def test_failure_47_dynamic_int8_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    prepared = prepare_for_quantization(tiny_bundle / MODEL_FILE, tmp_path / "prepared.onnx")
    path = quantize_to_dynamic(prepared, tmp_path / "int8.onnx")
    session = GpuSession(path, provider=CPU_PROVIDER)
    with pytest.raises(ArtifactError, match="scores on this GPU depend on a window's neighbours"):
        ShapedEncoder(session, BUDGET, pad_id=0, vocabulary_size=100)


def test_answers_outlive_the_buffers_they_came_from(session: GpuSession) -> None:
    shape = Shape(4, 32)
    first = session.run(shape_inputs(WINDOWS[:4], shape, pad_id=0))
    kept = first.copy()
    second = session.run(shape_inputs(WINDOWS[3:], shape, pad_id=0))
    assert first.tobytes() == kept.tobytes()
    assert second.tobytes() != kept.tobytes()


def test_buffers_of_a_shape_are_made_once(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[int]] = []
    make = ort.OrtValue.ortvalue_from_shape_and_type

    def counting(shape: list[int], *rest: Any) -> ort.OrtValue:
        made.append(shape)
        return make(shape, *rest)

    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_shape_and_type", counting)
    session = GpuSession(tiny_bundle / MODEL_FILE, provider=CPU_PROVIDER)
    for _ in range(3):
        session.run(shape_inputs(WINDOWS[:2], Shape(2, 32), pad_id=0))
    assert made == [[2, 32], [2, 32], [2, 32], [2, session.n_logits]]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Failed to allocate memory for requested buffer of size 99", OutOfDeviceMemoryError),
        ("CUDA failure 2: out of memory ; GPU=0", OutOfDeviceMemoryError),
        ("CUDA failure 700: an illegal memory access", RuntimeError),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(
    tiny_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    expected: type[Exception],
) -> None:
    session = GpuSession(tiny_bundle / MODEL_FILE, provider=CPU_PROVIDER)

    def fails(*_: Any) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(session._session, "run_with_iobinding", fails)
    with pytest.raises(expected, match=message[:20]):
        session.run(shape_inputs(WINDOWS[:2], Shape(2, 32), pad_id=0))


def test_failure_32_the_wheel_for_cpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", wheels("onnxruntime"))
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CPU_PROVIDER])
    with pytest.raises(ConfigError, match=r"needs CUDA\w+, installed is onnxruntime==1.32.0 with"):
        check_gpu_runtime()


@pytest.mark.usefixtures("cuda_wheel")
def test_failure_32_two_wheels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", wheels("onnxruntime", "onnxruntime-gpu"))
    with pytest.raises(ArtifactError, match=r"both onnxruntime==.* and onnxruntime-gpu==.* are in"):
        check_gpu_runtime()


@pytest.mark.usefixtures("cuda_wheel")
def test_the_wheel_for_gpus_alone_is_accepted() -> None:
    check_gpu_runtime()


@pytest.mark.usefixtures("cuda_wheel")
def test_failure_32_a_session_that_fell_back_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ort.InferenceSession
    asked: list[Any] = []

    def falls_back(path: str, options: ort.SessionOptions, **rest: Any) -> ort.InferenceSession:
        asked.append(rest)
        return make(path, options, providers=[CPU_PROVIDER])

    monkeypatch.setattr(ort, "InferenceSession", falls_back)
    with pytest.raises(ArtifactError, match=f"asked for provider {CUDA_PROVIDER}, the session run"):
        GpuSession(tiny_bundle / MODEL_FILE)
    assert asked[0]["enable_fallback"] == 0
    assert [name for name, _ in asked[0]["providers"]] == [CUDA_PROVIDER]
    assert asked[0]["providers"][0][1]["use_tf32"] == "0"


@pytest.mark.usefixtures("cuda_wheel")
@pytest.mark.parametrize("asked_for", [True, False])
def test_cuda_graphs_are_asked_for_and_each_shape_has_its_own_recording(
    tiny_bundle: Path, tiny_task: TaskConfig, monkeypatch: pytest.MonkeyPatch, asked_for: bool
) -> None:
    make = ort.InferenceSession
    settings: list[dict[str, str]] = []
    recordings: list[str] = []

    def opens(path: str, options: ort.SessionOptions, **rest: Any) -> ort.InferenceSession:
        settings.append(rest["providers"][0][1])
        session = make(path, options, providers=[CPU_PROVIDER])
        run = session.run_with_iobinding

        def watched(binding: ort.IOBinding, options: ort.RunOptions) -> None:
            recordings.append(options.get_run_config_entry("gpu_graph_id"))
            run(binding, options)

        monkeypatch.setattr(session, "run_with_iobinding", watched)
        return session

    monkeypatch.setattr(ort, "InferenceSession", opens)
    monkeypatch.setattr(gpu_session, "_check_assignment", lambda *_: None)
    monkeypatch.setitem(gpu_session._DEVICES, CUDA_PROVIDER, "cpu")
    score = {"max_batch_tokens": 128, "device": "gpu", "cuda_graphs": asked_for}
    task = tiny_task.model_copy(update={"score": tiny_task.score.model_copy(update=score)})
    encoder = gpu_encoder(tiny_bundle, task)
    assert (settings[0].get("enable_cuda_graph") == "1") is asked_for
    proven = len(recordings)
    assert len(set(recordings)) >= len(Budget(128, 32).shapes())
    encoder.logits(WINDOWS)
    encoder.logits(WINDOWS[::-1])
    assert set(recordings[proven:]) <= set(recordings[:proven])  # none is made at night


@pytest.mark.usefixtures("cuda_wheel")
def test_failure_32_a_model_with_costly_nodes_elsewhere_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ort.InferenceSession

    def partly(path: str, options: ort.SessionOptions, **_: Any) -> ort.InferenceSession:
        session = make(path, options, providers=[CPU_PROVIDER])
        monkeypatch.setattr(session, "get_providers", lambda: [CUDA_PROVIDER, CPU_PROVIDER])
        return session

    monkeypatch.setattr(ort, "InferenceSession", partly)
    with pytest.raises(ArtifactError, match=r"lacks kernels for this model: .*\d+ MatMul on CPUEx"):
        GpuSession(tiny_bundle / MODEL_FILE)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / MODEL_FILE
    path.write_bytes(b"no model")
    with pytest.raises(ArtifactError, match=r"model\.onnx cannot be loaded by ONNX Runtime"):
        GpuSession(path, provider=CPU_PROVIDER)


def test_a_bundles_encoder_has_the_tasks_budget(
    tiny_bundle: Path, tiny_task: TaskConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_session, "CUDA_PROVIDER", CPU_PROVIDER)
    shapes: list[tuple[int, ...]] = []
    run = GpuSession.run

    def watched(self: GpuSession, inputs: dict[str, Any]) -> Any:
        shapes.append(inputs["input_ids"].shape)
        return run(self, inputs)

    monkeypatch.setattr(GpuSession, "run", watched)
    score = tiny_task.score.model_copy(update={"max_batch_tokens": 128})
    gpu_encoder(tiny_bundle, tiny_task.model_copy(update={"score": score}))
    assert shapes[0] == (4, 32)
    assert max(rows * width for rows, width in shapes) == 128


def test_a_flow_on_a_gpu_gives_the_answers_of_a_flow_on_the_cpu(
    tiny_bundle: Path, tiny_task: TaskConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_session, "CUDA_PROVIDER", CPU_PROVIDER)
    score = tiny_task.score.model_copy(update={"device": "gpu", "max_batch_tokens": 128})
    on_gpu = scoring_flow(tiny_bundle, tiny_task.model_copy(update={"score": score}))
    rows = [
        RawRow("in.jsonl", n, {"ticket_id": f"t{n}", "subject": "help", "body": "late " * n}, b"")
        for n in range(1, 90)
    ]
    mine, theirs = on_gpu.score(rows), scoring_flow(tiny_bundle, tiny_task).score(rows)
    assert len(mine.scored) == 89
    assert mine.counters == theirs.counters
    for one, other in zip(mine.scored, theirs.scored, strict=True):
        assert one.prepared.record.record_id == other.prepared.record.record_id
        np.testing.assert_allclose(
            one.answers["queue"].scores, other.answers["queue"].scores, atol=1e-5
        )
