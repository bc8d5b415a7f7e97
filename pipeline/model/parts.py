"""The quantizable operators of a graph, by the part of the encoder that they belong to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import onnx

from schemas.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

Parts = dict[str, tuple[str, ...]]  # operators' names by part
_IN_LAYER = re.compile(r"/layers?\.(\d+)/(\w+)")
# What BERT's kin, MPNet and ModernBERT call it; all else in a layer is its feed-forward network.
_ATTENTION = ("attention", "attn")
_KEY = "compress.keep_fp32"


def quantizable_parts(path: Path) -> Parts:
    """Operators with weights by part, in the graph's order.

    Parts are `embeddings`, for each layer `layers.I.attention` and `layers.I.feed_forward`,
    `heads`, and by its own path whatever is none of these.
    """
    graph = onnx.load(str(path), load_external_data=False).graph
    matrices = {
        tensor.name
        for tensor in graph.initializer
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT
    }
    parts: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in matrices:
            parts.setdefault("embeddings", []).append(node.name)
        elif node.op_type in ("MatMul", "Gemm") and not matrices.isdisjoint(node.input):
            parts.setdefault(_part_of(node.name), []).append(node.name)
    return {name: tuple(nodes) for name, nodes in parts.items()}


def nodes_of(parts: Parts, names: Collection[str]) -> list[str]:
    """Operators of the parts called `names`.

    Raises:
        ConfigError: a name is that of no part.
    """
    for name in names:
        if name not in parts:
            raise ConfigError(
                f"{_KEY}: {name!r} is no part of this encoder{did_you_mean(name, parts)}; it has "
                f"{', '.join(parts)}"
            )
    return [node for name in names for node in parts[name]]


def _part_of(name: str) -> str:
    if (found := _IN_LAYER.search(name)) is not None:
        layer, module = found.groups()
        kind = "attention" if module in _ATTENTION else "feed_forward"
        return f"layers.{layer}.{kind}"
    return name.strip("/").rpartition("/")[0] or name
