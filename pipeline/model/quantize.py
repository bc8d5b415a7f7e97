"""FP32 ONNX into INT8, dynamic or static."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from pipeline.batch import window_inputs
from pipeline.model.int8_products import merge_products
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.window import Window

_OPERATORS = ["MatMul", "Gemm", "Gather"]


def prepare_for_quantization(source: Path, target: Path) -> Path:
    """Shape inference and constant folding, which both quantizers want done first."""
    quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    return target


def quantize_to_dynamic(source: Path, target: Path) -> Path:
    """INT8 weights per channel; activation scales are taken from each call's own tensor."""
    with _quiet():
        quantize_dynamic(
            str(source), str(target), per_channel=True, weight_type=QuantType.QInt8,
            op_types_to_quantize=_OPERATORS,
        )  # fmt: skip
    return target


def quantize_to_static(
    source: Path, target: Path, *, calibration: Sequence[Window], input_names: Sequence[str]
) -> Path:
    """INT8 weights and activations with scales fixed by min-max over `calibration`.

    One window at a time is calibrated on, so that no padding enters the ranges and memory stays
    bounded. Embedding tables are quantized as well, or the file would stay twice as large. What
    has no weights, the products inside attention, stays FP32, and so do results of products: their
    ranges differ too much from text to text, and INT8 there gained no speed.

    Raises:
        ArtifactError: there is nothing to calibrate on.
    """
    if not calibration:
        raise ArtifactError("static INT8 needs calibration texts, got none")
    graph = onnx.load(str(source), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    without_weights = [
        node.name
        for node in graph.node
        if node.op_type == "MatMul" and constants.isdisjoint(node.input)
    ]
    with _quiet():
        quantize_static(
            str(source), str(target), _WindowReader(calibration, input_names),
            quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, op_types_to_quantize=_OPERATORS,
            calibrate_method=CalibrationMethod.MinMax, nodes_to_exclude=without_weights,
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
        )  # fmt: skip
    model = onnx.load(str(target))
    merge_products(model)
    onnx.save(model, str(target))
    return target


class _WindowReader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, windows: Sequence[Window], input_names: Sequence[str]) -> None:
        self._names = tuple(input_names)
        self._feeds: Iterator[dict[str, Any]] = (self._feed(window) for window in windows)

    def get_next(self) -> dict[str, Any] | None:
        """The next window's inputs, None after the last."""
        return next(self._feeds, None)

    def _feed(self, window: Window) -> dict[str, Any]:
        inputs = window_inputs([window])
        return {name: inputs[name] for name in self._names}


@contextmanager
def _quiet() -> Iterator[None]:
    """The quantizers tell of every tensor they leave alone, through the root logger."""
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
