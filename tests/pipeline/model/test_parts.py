"""Operators go by the part of the encoder that they stand in, whatever the family calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.model.parts import nodes_of, quantizable_parts
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
PLACES = numpy_helper.from_array(np.arange(4), "places")


def write(path: Path, *nodes: onnx.NodeProto) -> Path:
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])], [],
        [MATRIX, PLACES],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), str(path))
    return path


def product(name: str) -> onnx.NodeProto:
    return helper.make_node("MatMul", ["x", "w"], [f"{name} out"], name=name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(
        tmp_path / "model.onnx",
        helper.make_node("Gather", ["w", "ids"], ["e"], name="/encoder/embeddings/word/Gather"),
        helper.make_node("Gather", ["places", "ids"], ["p"], name="/encoder/Gather"),
        product("/encoder/encoder/layer.0/attention/self/query/MatMul"),
        helper.make_node("MatMul", ["x", "e"], ["s"], name="/encoder/encoder/layer.0/attention/M"),
        product("/encoder/encoder/layer.0/attention/output/dense/MatMul"),
        product("/encoder/encoder/layer.0/intermediate/dense/MatMul"),
        product("/encoder/transformer/layer.0/ffn/lin2/MatMul"),
        product("/encoder/layers.11/attn/Wqkv/MatMul"),
        product("/encoder/layers.11/mlp/Wi/MatMul"),
        product("/encoder/projection/MatMul"),
        helper.make_node("Gemm", ["x", "w"], ["y"], name="/heads/Gemm"),
    )


def test_parts_follow_the_encoder(model: Path) -> None:
    parts = quantizable_parts(model)
    assert {name: len(nodes) for name, nodes in parts.items()} == {
        "embeddings": 1,
        "layers.0.attention": 2,
        "layers.0.feed_forward": 2,
        "layers.11.attention": 1,
        "layers.11.feed_forward": 1,
        "encoder/projection": 1,
        "heads": 1,
    }
    assert nodes_of(parts, ["heads", "embeddings"]) == [
        "/heads/Gemm", "/encoder/embeddings/word/Gather",
    ]  # fmt: skip


def test_a_part_that_is_not_there_is_refused(model: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"keep_fp32: 'layers.0.atention' is no part of this encoder \(did you mean "
        r"'layers.0.attention'\?\); it has embeddings, layers.0.attention, ",
    ):
        nodes_of(quantizable_parts(model), ["layers.0.atention"])
