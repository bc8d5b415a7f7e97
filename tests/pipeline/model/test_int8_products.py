"""One operator for a product of integers gives what the three before it gave."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.model.int8_products import PRODUCT, merge_products

WIDTH, OUT = 8, 6
CHANCE = np.random.default_rng(4)
WEIGHTS = CHANCE.integers(-127, 128, (WIDTH, OUT), dtype=np.int8)
CONSTANTS = {
    "scale": np.float32(0.02), "zero": np.uint8(128), "weights": WEIGHTS,
    "scales": CHANCE.uniform(0.001, 0.01, OUT).astype(np.float32),
    "zeros": np.zeros(OUT, np.int8), "bias": CHANCE.normal(size=OUT).astype(np.float32),
}  # fmt: skip


def graph_of(*after: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """`x (B, 8)` quantized, times weights `(8, 6)` into `product`, then the nodes `after`."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["weights", "scales", "zeros"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["product"]),
        *after,
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", OUT]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in CONSTANTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(model: onnx.ModelProto) -> list[np.ndarray]:
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": CHANCE_INPUT})


CHANCE_INPUT = CHANCE.normal(size=(5, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(
    ("after", "outputs", "inputs", "operators"),
    [
        pytest.param(
            [helper.make_node("Add", ["bias", "product"], ["y"])], ("y",), 7,
            ["QuantizeLinear", PRODUCT], id="bias",
        ),
        pytest.param(
            [helper.make_node("Relu", ["product"], ["y"])], ("y",), 6,
            ["QuantizeLinear", PRODUCT, "Relu"], id="no bias",
        ),
        pytest.param(
            [helper.make_node("Add", ["product", "product"], ["y"])], ("y",), 6,
            ["QuantizeLinear", PRODUCT, "Add"], id="added to itself",
        ),
        pytest.param(
            [
                helper.make_node("Add", ["bias", "product"], ["y"]),
                helper.make_node("Relu", ["product"], ["z"]),
            ],
            ("y", "z"), 6, ["QuantizeLinear", PRODUCT, "Add", "Relu"], id="read twice",
        ),
        pytest.param([], ("product",), 6, ["QuantizeLinear", PRODUCT], id="the graph's output"),
        pytest.param(
            [helper.make_node("Add", ["bias", "product"], ["y"])], ("y", "product"), 6,
            ["QuantizeLinear", PRODUCT, "Add"], id="also an output",
        ),
    ],
)  # fmt: skip
def test_a_product_is_merged_with_what_is_its_own(
    after: list[onnx.NodeProto], outputs: tuple[str, ...], inputs: int, operators: list[str]
) -> None:
    model = graph_of(*after, outputs=outputs)
    before = run(model)
    assert merge_products(model) == 1
    assert [node.op_type for node in model.graph.node] == operators
    (product,) = [node for node in model.graph.node if node.op_type == PRODUCT]
    assert len(product.input) == inputs
    for wanted, got in zip(before, run(model), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_product_of_activations_stays() -> None:
    model = graph_of(
        helper.make_node("Transpose", ["a"], ["turned"]),
        helper.make_node("MatMul", ["turned", "product"], ["y"]),
    )
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = WIDTH
    before = run(model)
    assert merge_products(model) == 1
    assert [node.op_type for node in model.graph.node].count("MatMul") == 1
    np.testing.assert_allclose(run(model)[0], before[0], rtol=1e-4, atol=1e-4)


def test_a_second_time_there_is_nothing_to_merge() -> None:
    model = graph_of(helper.make_node("Add", ["bias", "product"], ["y"]))
    assert (merge_products(model), merge_products(model)) == (1, 0)
    assert [opset.domain for opset in model.opset_import] == ["", "com.microsoft"]
