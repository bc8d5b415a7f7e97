"""PyTorch to ONNX, our own way: input names follow the model's `forward` signature."""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.batches import takes_segments
from pipeline.model.dense_attention import dense_attention
from pipeline.model.fused_operators import optimised_operators
from pipeline.model.model_file import MAX_WEIGHT_BYTES, save_model
from schemas.bundle import Export
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.model.network import Classifier

OPSET = 17  # the legacy exporter's newest; its graph is the one ONNX Runtime fuses attention in
OUTPUT = "logits"
# Exporters take an axis of one for a constant, and one of the traced example for the only one.
_BATCHES = (1, 2, 3)
_LENGTHS = (1, 9, 14)  # two and nine are traced; 14 and more even the smallest encoders read
_EXPORTERS = ("torch", "transformers", "onnx")


def export_onnx(
    model: Classifier, path: Path, *, max_weight_bytes: int = MAX_WEIGHT_BYTES
) -> tuple[str, ...]:
    """Writes `model` with dynamic batch and length; answers the input names in graph order.

    The exporter attaches names by position of the forward signature, whatever the keys of the
    inputs say: a swapped mask and segment ids export without error and score wrongly. Weights of
    more than `max_weight_bytes` go into a file beside `path`.

    Raises:
        ArtifactError: the graph's inputs are not the signature's, or it holds for one shape only.
    """
    known = list(inspect.signature(model.forward).parameters)
    names = known if takes_segments(model) else [n for n in known if n != "token_type_ids"]
    example = {
        "input_ids": torch.ones(2, 9, dtype=torch.int64),
        "attention_mask": torch.ones(2, 9, dtype=torch.int64),
        "token_type_ids": torch.zeros(2, 9, dtype=torch.int64),
    }
    model.eval()
    # A folder of its own: beyond 2 GB the exporter writes a file for each weight.
    with TemporaryDirectory(dir=path.parent) as folder:
        traced = Path(folder) / "traced.onnx"
        with warnings.catch_warnings(), _attention_as_operators(model):
            warnings.simplefilter("ignore")  # tracer notes on shapes that the parity gate checks
            torch.onnx.export(
                model,
                tuple(example[name] for name in names),
                str(traced),
                input_names=names,
                output_names=[OUTPUT],
                dynamic_axes={name: {0: "batch", 1: "length"} for name in names}
                | {OUTPUT: {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
        graph = onnx.load(str(traced))
    got = tuple(node.name for node in graph.graph.input)
    if got != tuple(names):
        raise ArtifactError(f"exported inputs are {got}, the model's forward takes {names}")
    save_model(graph, path, max_weight_bytes=max_weight_bytes)
    check_shapes(OnnxEncoder(path))
    return got


def check_shapes(encoder: OnnxEncoder) -> None:
    """Runs the graph over a grid of batches and lengths, one of each included.

    What it answers is for the parity gate to judge, on the task's own lengths.

    Raises:
        ArtifactError: it fails or answers in another shape: the trace's batch or length is in it.
    """
    for rows in _BATCHES:
        for length in _LENGTHS:
            ones = np.ones((rows, length), dtype=np.int64)
            inputs = {"input_ids": ones, "attention_mask": ones, "token_type_ids": 0 * ones}
            shape = f"batch {rows}, length {length}"
            try:
                got = encoder.run(inputs).shape
            except Exception as error:  # onnxruntime's own errors share no public base
                raise ArtifactError(f"the exported graph fails on {shape}: {error}") from error
            if len(got) != 2 or got[0] != rows:
                raise ArtifactError(
                    f"the exported graph answers {got} on {shape}, expected {rows} rows: batch or "
                    f"length of the traced example is written down in it"
                )


def describe_export(path: Path) -> Export:
    """What `bundle.json` tells of the model at `path`: opset, writers, and operators as run here.

    The operators are counted after ONNX Runtime has optimised the graph for this host.
    """
    model = onnx.load(str(path), load_external_data=False)
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return Export(
        opset=opset,
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        exporters={name: metadata.version(name) for name in _EXPORTERS},
        operators=dict(sorted(optimised_operators(path).items())),
    )


@contextmanager
def _attention_as_operators(model: Classifier) -> Iterator[None]:
    """Has attention traced operator by operator.

    PyTorch's fused attention is exported with masks for rows of NaN, which cost ONNX Runtime a
    tenth of the time in INT8. Parity on fully masked rows is the gates' to measure. Longformer's
    attention is its own, and is traced without its chunks.
    """
    encoder = model.encoder
    if encoder.config.model_type == "longformer":
        with dense_attention(encoder):
            yield
        return
    before = encoder.config._attn_implementation
    encoder.set_attn_implementation("eager")
    try:
        yield
    finally:
        encoder.set_attn_implementation(before)
