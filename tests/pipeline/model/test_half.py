"""The FP16 graph answers as the FP32 one does, in half the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.half import convert_to_half
from pipeline.window import Window
from schemas.bundle import MODEL_FILE

if TYPE_CHECKING:
    from pathlib import Path

WINDOWS = [Window((2, *range(5, 5 + n), 3), (0,) * (n + 2), 0, 1) for n in (1, 3, 9, 30)]


@pytest.fixture(scope="module")
def half(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert_to_half(tiny_bundle / MODEL_FILE, tmp_path_factory.mktemp("half") / "half.onnx")


def test_logits_are_close_to_fp32_and_differ_by_text(half: Path, tiny_bundle: Path) -> None:
    logits = OnnxEncoder(half).logits(WINDOWS)
    expected = OnnxEncoder(tiny_bundle / MODEL_FILE).logits(WINDOWS)
    np.testing.assert_allclose(logits, expected, atol=0.02)
    assert np.abs(expected - expected.mean(axis=0)).max() > 0.1


def test_weights_are_16_bits_and_the_interface_stays(half: Path, tiny_bundle: Path) -> None:
    mine, theirs = (onnx.load(str(path)).graph for path in (half, tiny_bundle / MODEL_FILE))
    large = [tensor for tensor in mine.initializer if np.prod(tensor.dims) > 64]
    assert large
    assert {tensor.data_type for tensor in large} == {onnx.TensorProto.FLOAT16}
    assert [node.name for node in mine.input] == [node.name for node in theirs.input]
    assert mine.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
