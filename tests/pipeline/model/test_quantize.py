from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.export import export_onnx
from pipeline.model.network import Classifier
from pipeline.model.quantize import (
    prepare_for_quantization,
    quantize_to_dynamic,
    quantize_to_static,
)
from pipeline.window import Window
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("input_ids", "attention_mask", "token_type_ids")


def window(length: int, seed: int) -> Window:
    ids = np.random.default_rng(seed).integers(5, 4000, length)
    return Window((2, *ids.tolist(), 3), (0,) * (length + 2), 0, 1)


CALIBRATION = [window(3 + seed * 2, seed) for seed in range(10)]  # every one of another length


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """FP32, prepared, dynamic and static of one model whose weight is mostly embeddings."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=4000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=64, initializer_range=0.1,
    )  # fmt: skip
    encoder = BertModel(config, add_pooling_layer=False)
    model = Classifier(encoder, n_logits=3, pooling="mean", dropout=0.0)
    nn.init.normal_(model.heads.weight, std=1.0)
    folder = tmp_path_factory.mktemp("variants")
    fp32, prepared = folder / "fp32.onnx", folder / "prepared.onnx"
    assert export_onnx(model.eval(), fp32) == NAMES
    prepare_for_quantization(fp32, prepared)
    return {
        "fp32": fp32,
        "prepared": prepared,
        "dynamic": quantize_to_dynamic(prepared, folder / "dynamic.onnx"),
        "static": quantize_to_static(
            prepared, folder / "static.onnx", calibration=CALIBRATION, input_names=NAMES
        ),
    }


@pytest.mark.parametrize("variant", ["dynamic", "static"])
def test_int8_is_small_and_close(files: dict[str, Path], variant: str) -> None:
    assert files[variant].stat().st_size < files["fp32"].stat().st_size / 2
    windows = [window(12, seed) for seed in range(20, 30)]
    wanted, got = (OnnxEncoder(files[name]).logits(windows) for name in ("fp32", variant))
    assert 0 < np.abs(wanted - got).max() < 0.25 * np.ptp(wanted)


@pytest.mark.parametrize("variant", ["dynamic", "static"])
def test_the_embedding_table_is_quantized_too(files: dict[str, Path], variant: str) -> None:
    graph = onnx.load(str(files[variant])).graph
    (table,) = [tensor for tensor in graph.initializer if tuple(tensor.dims) == (4000, 64)]
    assert table.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


def test_static_int8_gives_the_same_bytes_in_any_batch_of_equal_lengths(
    files: dict[str, Path],
) -> None:
    encoder = OnnxEncoder(files["static"])
    windows = [window(12, seed) for seed in range(16)]
    together = encoder.run(window_inputs(windows))
    assert np.array_equal(together, encoder.logits(windows))
    assert np.array_equal(encoder.run(window_inputs(windows[::-1]))[::-1], together)


def test_dynamic_int8_moves_with_its_neighbours_unless_alone(files: dict[str, Path]) -> None:
    # Why the engine calls one window at a time: this is the known fault that it guards against.
    encoder = OnnxEncoder(files["dynamic"])
    windows = [window(12, seed) for seed in range(16)]
    alone = encoder.logits(windows)
    assert np.abs(encoder.run(window_inputs(windows)) - alone).max() > 0
    assert np.array_equal(encoder.logits(windows[::-1])[::-1], alone)


def test_static_int8_has_every_product_with_weights_and_its_bias_in_one_operator(
    files: dict[str, Path],
) -> None:
    graph = onnx.load(str(files["static"])).graph
    constants = {tensor.name for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
    assert len(products) == 2 * 6
    assert all(len(node.input) == 7 for node in products)
    makers = {name: node.op_type for node in graph.node for name in node.output}
    in_attention = [node for node in graph.node if node.op_type == "MatMul"]
    assert len(in_attention) == 2 * 2
    for node in in_attention:  # these stay fp32
        assert not constants.intersection(node.input)
        assert "DequantizeLinear" not in {makers[name] for name in node.input}


def test_static_int8_needs_calibration(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="static INT8 needs calibration texts, got none"):
        quantize_to_static(
            files["prepared"], tmp_path / "static.onnx", calibration=[], input_names=NAMES
        )
    assert not (tmp_path / "static.onnx").exists()


def test_the_root_logger_keeps_its_level(files: dict[str, Path], tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    try:
        quantize_to_dynamic(files["prepared"], tmp_path / "dynamic.onnx")
        assert root.level == logging.INFO
        with pytest.raises(Exception, match="missing"):
            quantize_to_dynamic(tmp_path / "missing.onnx", tmp_path / "x.onnx")
        assert root.level == logging.INFO
    finally:
        root.setLevel(before)
