"""ONNX Runtime gives a window the same bytes whoever stands beside it, or says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.batch import window_inputs
from pipeline.batch_plan import BatchTable
from pipeline.engines import onnx_session
from pipeline.engines.host import has_vnni
from pipeline.engines.onnx_session import OnnxEncoder, session_options
from pipeline.model.quantize import quantize_to_dynamic
from pipeline.window import Window
from schemas.bundle import MODEL_FILE
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

WINDOWS = [
    Window((2, *range(5, 5 + length), 3), (0,) * (length + 2), 0, 1) for length in (1, 3, 9, 30, 3)
]


@pytest.fixture
def saturating_products(tmp_path: Path) -> Path:
    """A dynamic INT8 product `(B, 64) x (64, 32)` of ones, all of which are the largest factors."""
    weights = numpy_helper.from_array(np.ones((64, 32), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "ones",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", 32])],
        [weights],
    )
    source, target = tmp_path / "ones.onnx", tmp_path / "int8.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), source)
    return quantize_to_dynamic(source, target)


@pytest.fixture(scope="module")
def encoder(tiny_bundle: Path) -> OnnxEncoder:
    return OnnxEncoder(tiny_bundle / MODEL_FILE)


def test_failure_25_a_window_has_the_same_bytes_alone_and_among_others(
    encoder: OnnxEncoder,
) -> None:
    """A score never depends on its neighbours."""
    together = encoder.logits(WINDOWS)
    assert together.shape == (5, 5)
    assert together.dtype == np.float32
    for row, window in zip(together, WINDOWS, strict=True):
        assert encoder.logits([window]).tobytes() == row.tobytes()
    assert encoder.logits(WINDOWS[::-1])[::-1].tobytes() == together.tobytes()
    assert together[1].tobytes() == together[4].tobytes()
    assert not np.allclose(together[0], together[2], atol=1e-3)


def test_a_second_session_gives_the_same_bytes(encoder: OnnxEncoder, tiny_bundle: Path) -> None:
    other = OnnxEncoder(tiny_bundle / MODEL_FILE)
    assert other.logits(WINDOWS).tobytes() == encoder.logits(WINDOWS).tobytes()


def test_inputs_are_the_graphs_own(encoder: OnnxEncoder) -> None:
    """FAILURES row 46: inputs are fed by name, never by position."""
    assert encoder.input_names == ("input_ids", "attention_mask", "token_type_ids")
    inputs = window_inputs(WINDOWS[:2])
    backwards = dict(reversed(inputs.items()))
    assert encoder.run(inputs).tobytes() == encoder.run(backwards).tobytes()


def test_padding_does_not_move_fp32_logits(encoder: OnnxEncoder) -> None:
    padded = encoder.run(window_inputs(WINDOWS, multiple=8))
    np.testing.assert_allclose(padded, encoder.logits(WINDOWS), atol=1e-5)


def test_failure_32_a_provider_this_host_lacks_is_refused(tiny_bundle: Path) -> None:
    """Never a silent fall back to the CPU."""
    with pytest.raises(ArtifactError, match=r"NoSuchProvider is not available, this wheel has .*C"):
        OnnxEncoder(tiny_bundle / MODEL_FILE, provider="NoSuchProvider")


def test_failure_32_a_session_on_another_provider_than_asked_for_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel lists the provider, its libraries do not load."""
    asked = "CUDAExecutionProvider"
    monkeypatch.setattr(ort, "get_available_providers", lambda: [asked, "CPUExecutionProvider"])
    make = ort.InferenceSession

    def falls_back(path: str, options: object, providers: list[str], **others: Any) -> object:
        assert providers == [asked]
        return make(path, options, providers=["CPUExecutionProvider"], **others)

    monkeypatch.setattr(ort, "InferenceSession", falls_back)
    with pytest.raises(ArtifactError, match=f"asked for provider {asked}, the session runs on CPU"):
        OnnxEncoder(tiny_bundle / MODEL_FILE, provider=asked)


@pytest.mark.parametrize("keep_bytes", [0, 1000, -1000])
def test_a_truncated_file_is_refused(tiny_bundle: Path, tmp_path: Path, keep_bytes: int) -> None:
    path = tmp_path / MODEL_FILE
    path.write_bytes((tiny_bundle / MODEL_FILE).read_bytes()[:keep_bytes])
    with pytest.raises(ArtifactError, match=r"model\.onnx cannot be loaded by ONNX Runtime"):
        OnnxEncoder(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        OnnxEncoder(tmp_path / "none.onnx")


def test_failure_23_a_session_takes_only_the_threads_it_is_given() -> None:
    """The pool is sized by us, not by the host's cores."""
    options = session_options(2)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def precise(options: ort.SessionOptions) -> bool:
    try:
        return options.get_session_config_entry("session.x64quantprecision") == "1"
    except RuntimeError:  # there is no such entry
        return False


@pytest.mark.parametrize("vnni", [True, False])
def test_failure_24_int8_sums_do_not_overflow_where_there_is_no_vnni(
    vnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, U8S8 products saturate in 16 bits on AVX2 and AVX512, and labels are wrong."""
    monkeypatch.setattr(onnx_session, "has_vnni", lambda: vnni)
    assert precise(session_options(1)) is not vnni


@pytest.mark.skipif(not has_vnni(), reason="the fast kernel is right on hosts with VNNI only")
def test_failure_24_the_precise_kernel_gives_the_bytes_that_vnni_gives(
    saturating_products: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for vnni in (True, False):
        monkeypatch.setattr(onnx_session, "has_vnni", lambda vnni=vnni: vnni)
        session = ort.InferenceSession(
            str(saturating_products), session_options(1), providers=["CPUExecutionProvider"]
        )
        answers.append(session.run(None, {"x": np.full((3, 64), 1, np.float32)})[0])
    assert answers[0].tobytes() == answers[1].tobytes()
    # 64 products of the largest factors, 255 x 127 each, would not fit 16 bits in pairs.
    np.testing.assert_allclose(answers[0], np.full((3, 32), 64.0), rtol=1e-5)


def test_windows_of_equal_length_share_a_call_and_keep_their_places(tiny_bundle: Path) -> None:
    calls: list[list[int]] = []

    class Spy(OnnxEncoder):
        def one_call(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
            calls.append([window.n_tokens for window in windows])
            return super().one_call(windows)

    encoder = Spy(tiny_bundle / MODEL_FILE, batches=BatchTable(((5, 2), (11, 4))))
    windows = [*WINDOWS, *WINDOWS[::-1]]
    got = encoder.logits(windows)
    assert calls == [[3, 3], [5, 5], [5, 5], [11, 11], [32], [32]]
    alone = np.concatenate([encoder.one_call([window]) for window in windows])
    np.testing.assert_allclose(got, alone, atol=1e-5)  # to the bit is what a host measures first


def test_no_window_is_padded(tiny_bundle: Path) -> None:
    """Other lengths than a call's own are never made equal by padding."""
    encoder = OnnxEncoder(tiny_bundle / MODEL_FILE)
    with pytest.raises(ValueError, match="inhomogeneous"):
        encoder.one_call(WINDOWS[:2])
