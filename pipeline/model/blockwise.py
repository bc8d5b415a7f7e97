"""Weights in blocks of 8 or 4 bits: each block of a column has a scale and an offset of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

# The kernels of `onnxruntime.quantization.matmul_nbits_quantizer`; that module needs a package more
# to be imported, and rewrites no `Gemm`.
from onnxruntime.capi._pybind_state import quantize_matmul_4bits, quantize_matmul_8bits

if TYPE_CHECKING:
    from collections.abc import Collection

Bits = Literal[4, 8]
BLOCKWISE = "MatMulNBits"
_DOMAIN = "com.microsoft"
_KERNELS = {4: quantize_matmul_4bits, 8: quantize_matmul_8bits}
# Activations are quantized to 8 bits within the operator, for each row's blocks by themselves.
_INT8_ACTIVATIONS = 4


def quantize_blocks(
    model: onnx.ModelProto, *, bits: Bits, block_size: int, exclude: Collection[str] = ()
) -> int:
    """Replaces products with a constant matrix by block-wise ones; answers how many.

    Operators named in `exclude` stay. A `Gemm` becomes a product and an addition.
    """
    graph = model.graph
    matrices = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    nodes: list[onnx.NodeProto] = []
    replaced = 0
    for node in graph.node:
        weights = None if node.name in exclude else _weights(node, matrices)
        if weights is None:
            nodes.append(node)
            continue
        nodes += _block_product(graph, node, weights, bits=bits, block_size=block_size)
        replaced += 1
    _replace_nodes(graph, nodes)
    if _DOMAIN not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    return replaced


def _weights(
    node: onnx.NodeProto, matrices: dict[str, onnx.TensorProto]
) -> npt.NDArray[np.float32] | None:
    """The matrix `(K, N)` that a product multiplies by; None where it is no such product."""
    if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in matrices:
        return None
    settings = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if settings.get("transA") or settings.get("alpha", 1.0) != 1.0 or settings.get("beta", 1) != 1:
        return None
    tensor = matrices[node.input[1]]
    if tensor.data_type != onnx.TensorProto.FLOAT:
        return None
    weights = numpy_helper.to_array(tensor)
    return np.ascontiguousarray(weights.T if settings.get("transB") else weights)


def _block_product(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    weights: npt.NDArray[np.float32],
    *,
    bits: Bits,
    block_size: int,
) -> list[onnx.NodeProto]:
    packed, scales, zeros = pack_blocks(weights, bits=bits, block_size=block_size)
    constants = {"packed": packed, "scales": scales, "zeros": zeros}
    names = [f"{node.name}/{kind}" for kind in constants]
    graph.initializer.extend(
        numpy_helper.from_array(value, name)
        for name, value in zip(names, constants.values(), strict=True)
    )
    has_bias = node.op_type == "Gemm" and len(node.input) > 2
    output = f"{node.name}/product" if has_bias else node.output[0]
    rows, columns = weights.shape
    made = [
        helper.make_node(
            BLOCKWISE, [node.input[0], *names], [output], name=node.name, domain=_DOMAIN,
            K=rows, N=columns, bits=bits, block_size=block_size, accuracy_level=_INT8_ACTIVATIONS,
        )
    ]  # fmt: skip
    if has_bias:
        made.append(
            helper.make_node("Add", [output, node.input[2]], [node.output[0]], name=f"{output}/Add")
        )
    return made


def pack_blocks(
    weights: npt.NDArray[np.float32], *, bits: Bits, block_size: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Packed blocks, scales and zero points of a matrix `(K, N)`, as ONNX Runtime reads them.

    Packed is `(N, blocks, block_size * bits / 8)`; what is short of a block is filled with zeros.
    """
    rows, columns = weights.shape
    blocks = -(-rows // block_size)
    filled = np.pad(weights, ((0, blocks * block_size - rows), (0, 0)))
    per_byte = 8 // bits
    packed = np.zeros((columns, blocks, block_size // per_byte), np.uint8)
    scales = np.zeros((columns, blocks), np.float32)
    zeros = np.zeros((columns, -(-blocks // per_byte)), np.uint8)
    is_symmetric = False
    _KERNELS[bits](packed, filled, scales, zeros, block_size, columns, rows, is_symmetric)
    return packed, scales, zeros


def _replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Puts `nodes` in place of the graph's, and drops constants that none of them reads."""
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
