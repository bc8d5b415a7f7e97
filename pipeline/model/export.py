"""PyTorch to ONNX, our own way: input names follow the model's `forward` signature."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx
import torch
from torch import nn

from pipeline.model.batches import takes_segments
from pipeline.model.dense_attention import dense_attention
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPSET = 17  # the legacy exporter's newest; its graph is the one ONNX Runtime fuses attention in
OUTPUT = "logits"


def export_onnx(model: nn.Module, path: Path) -> tuple[str, ...]:
    """Writes `model` with dynamic batch and length; answers the input names in graph order.

    The exporter attaches names by position of the forward signature, whatever the keys of the
    inputs say: a swapped mask and segment ids export without error and score wrongly.

    Raises:
        ArtifactError: the graph's inputs are not the signature's.
    """
    known = list(inspect.signature(model.forward).parameters)
    names = known if takes_segments(model) else [n for n in known if n != "token_type_ids"]
    example = {
        "input_ids": torch.ones(2, 9, dtype=torch.int64),
        "attention_mask": torch.ones(2, 9, dtype=torch.int64),
        "token_type_ids": torch.zeros(2, 9, dtype=torch.int64),
    }
    model.eval()
    with warnings.catch_warnings(), _attention_as_operators(model):
        warnings.simplefilter("ignore")  # tracer notes on shapes that the parity gate checks
        torch.onnx.export(
            model,
            tuple(example[name] for name in names),
            str(path),
            input_names=names,
            output_names=[OUTPUT],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names}
            | {OUTPUT: {0: "batch"}},
            opset_version=OPSET,
            dynamo=False,
        )
    got = tuple(node.name for node in onnx.load(str(path), load_external_data=False).graph.input)
    if got != tuple(names):
        raise ArtifactError(f"exported inputs are {got}, the model's forward takes {names}")
    return got


@contextmanager
def _attention_as_operators(model: nn.Module) -> Iterator[None]:
    """Has attention traced operator by operator.

    PyTorch's fused attention is exported with masks for rows of NaN, which cost ONNX Runtime a
    tenth of the time in INT8. Parity on fully masked rows is the gates' to measure. Longformer's
    attention is its own, and is traced without its chunks.
    """
    encoder = getattr(model, "encoder", None)
    if getattr(getattr(encoder, "config", None), "model_type", "") == "longformer":
        with dense_attention(model.encoder):  # type: ignore[arg-type]
            yield
        return
    before = getattr(getattr(encoder, "config", None), "_attn_implementation", None)
    if encoder is None or before is None:
        yield
        return
    encoder.set_attn_implementation("eager")
    try:
        yield
    finally:
        encoder.set_attn_implementation(before)
