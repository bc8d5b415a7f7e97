"""Products in blocks of few bits give what a product with the rounded weights gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.model.blockwise import BLOCKWISE, Bits, pack_blocks, quantize_blocks

ROWS, COLUMNS = 40, 6  # not a multiple of the block of 16
CHANCE = np.random.default_rng(3)
WEIGHTS = CHANCE.normal(size=(ROWS, COLUMNS)).astype(np.float32)
BIAS = CHANCE.normal(size=COLUMNS).astype(np.float32)
INPUT = CHANCE.normal(size=(5, ROWS)).astype(np.float32)


def graph_of(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    constants = {"w": WEIGHTS, "wt": WEIGHTS.T.copy(), "bias": BIAS}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", ROWS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", COLUMNS])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(model: onnx.ModelProto) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": INPUT})[0]


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
GEMM = helper.make_node("Gemm", ["x", "wt", "bias"], ["y"], name="heads", transB=1)


@pytest.mark.parametrize(("bits", "error"), [(8, 0.15), (4, 2.0)])
@pytest.mark.parametrize("node", [PRODUCT, GEMM], ids=["MatMul", "Gemm"])
def test_the_product_is_close_and_not_the_same(
    node: onnx.NodeProto, bits: Bits, error: float
) -> None:
    model = graph_of(node)
    wanted = run(model)
    assert quantize_blocks(model, bits=bits, block_size=16) == 1
    assert model.graph.node[0].op_type == BLOCKWISE
    off = np.abs(run(model) - wanted).max()
    assert 1e-4 < off < error
    # The FP32 matrix is gone; the bias of a Gemm is not.
    names = {tensor.name for tensor in model.graph.initializer}
    assert names.isdisjoint({"w", "wt"})
    assert ("bias" in names) == (node is GEMM)


def test_what_is_excluded_or_scaled_stays() -> None:
    model = graph_of(PRODUCT)
    assert quantize_blocks(model, bits=8, block_size=16, exclude=["product"]) == 0
    scaled = helper.make_node("Gemm", ["x", "wt"], ["y"], name="heads", transB=1, alpha=0.5)
    model = graph_of(scaled)
    assert quantize_blocks(model, bits=8, block_size=16) == 0
    assert [node.op_type for node in model.graph.node] == ["Gemm"]


@pytest.mark.parametrize(("bits", "steps"), [(8, 255), (4, 15)])
def test_a_block_is_rounded_to_its_own_scale(bits: Bits, steps: int) -> None:
    weights = WEIGHTS.copy()
    weights[:16] *= 100  # one block of large weights does not coarsen the others
    packed, scales, zeros = pack_blocks(weights, bits=bits, block_size=16)
    assert packed.shape == (COLUMNS, 3, 16 * bits // 8)
    assert zeros.shape == (COLUMNS, 3 if bits == 8 else 2)
    spread = [np.ptp(np.append(weights[start : start + 16, 0], 0)) for start in (0, 16)]
    np.testing.assert_allclose(scales[0, :2], np.array(spread) / steps, rtol=0.1)
