"""FP32 ONNX into INT8, dynamic or static, and into blocks of 8 or 4 bits."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import onnx
from onnxruntime.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.calibrate import TensorsData, save_tensors_data
from onnxruntime.quantization.shape_inference import quant_pre_process

from pipeline.model.blockwise import quantize_blocks
from pipeline.model.calibrate import OPERATORS, measure_ranges
from pipeline.model.int8_products import merge_products
from pipeline.model.model_file import has_data_file, save_model
from schemas.bundle import DATA_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pipeline.model.blockwise import Bits
    from pipeline.window import Window
    from schemas.task import CalibrationMethod as Method
    from schemas.task import Int8Weights


def prepare_for_quantization(source: Path, target: Path) -> Path:
    """Shape inference and constant folding, which all quantizers want done first.

    Weights that lie beside `source` lie beside `target` too, so that it needs its own folder.
    """
    quant_pre_process(
        str(source), str(target), skip_symbolic_shape=True,
        save_as_external_data=has_data_file(source), all_tensors_to_one_file=True,
        external_data_location=DATA_FILE,
    )  # fmt: skip
    return target


def quantize_to_dynamic(
    source: Path, target: Path, *, weights: Int8Weights = "signed", exclude: Collection[str] = ()
) -> Path:
    """INT8 weights per channel; activation scales are taken from each call's own tensor.

    Operators named in `exclude` stay FP32.
    """
    with _quantized(source) as raw:
        quantize_dynamic(
            str(source), str(raw), op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=list(exclude), use_external_data_format=has_data_file(source),
            **_weight_options(weights),
        )  # fmt: skip
        return save_model(onnx.load(str(raw)), target)


def quantize_to_static(
    source: Path,
    target: Path,
    *,
    calibration: Sequence[Window],
    input_names: Sequence[str],
    method: Method = "minmax",
    weights: Int8Weights = "signed",
) -> Path:
    """INT8 weights and activations with scales fixed by `calibration`, see `quantize_by_ranges`.

    Raises:
        ArtifactError: there is nothing to calibrate on.
    """
    ranges = measure_ranges(source, calibration, input_names, method=method)
    return quantize_by_ranges(source, target, ranges=ranges, weights=weights)


def quantize_by_ranges(
    source: Path,
    target: Path,
    *,
    ranges: TensorsData,
    weights: Int8Weights = "signed",
    exclude: Collection[str] = (),
) -> Path:
    """INT8 weights and activations with scales fixed by `ranges`; those in `exclude` stay FP32.

    Embedding tables are quantized as well, or the file would stay twice as large. What has no
    weights, the products inside attention, stays FP32, and so do results of products: their ranges
    differ too much from text to text, and INT8 there gained no speed.
    """
    graph = onnx.load(str(source), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    without_weights = [
        node.name
        for node in graph.node
        if node.op_type == "MatMul" and constants.isdisjoint(node.input)
    ]
    with _quantized(source) as raw:
        known = raw.with_name("ranges.json")
        save_tensors_data(ranges, known)
        quantize_static(
            str(source), str(raw), calibration_cache_path=known,
            calibrate_method=CalibrationMethod.MinMax, quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8, op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=[*without_weights, *exclude],
            use_external_data_format=has_data_file(source),
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
            **_weight_options(weights),
        )  # fmt: skip
        model = onnx.load(str(raw))
    merge_products(model)
    return save_model(model, target)


def quantize_to_blocks(
    source: Path, target: Path, *, bits: Bits, block_size: int = 32, exclude: Collection[str] = ()
) -> Path:
    """Weights of products in blocks, embedding tables in INT8; those in `exclude` stay FP32."""
    with _quantized(source) as raw:
        quantize_dynamic(
            str(source), str(raw), weight_type=QuantType.QInt8, op_types_to_quantize=["Gather"],
            nodes_to_exclude=list(exclude), use_external_data_format=has_data_file(source),
        )  # fmt: skip
        model = onnx.load(str(raw))
    quantize_blocks(model, bits=bits, block_size=block_size, exclude=exclude)
    return save_model(model, target)


def _weight_options(weights: Int8Weights) -> dict[str, Any]:
    """What the quantizers call the three kinds of weights.

    On a CPU without VNNI the fast kernel adds pairs of unsigned times signed products in 16 bits:
    127 and 255 overflow there, 63 and 255 do not. Products of unsigned weights take another kernel.
    """
    kind = QuantType.QUInt8 if weights == "unsigned" else QuantType.QInt8
    return {"weight_type": kind, "reduce_range": weights == "reduced", "per_channel": True}


@contextmanager
def _quantized(source: Path) -> Iterator[Path]:
    """A path in a folder of its own for what a quantizer writes, and quiet while it works.

    The quantizers tell of every tensor they leave alone, through the root logger.
    """
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.ERROR)
    try:
        with TemporaryDirectory(dir=source.parent) as folder:
            yield Path(folder) / "quantized.onnx"
    finally:
        root.setLevel(level)
