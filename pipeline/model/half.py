"""FP32 ONNX into FP16: the variant for GPUs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onnxruntime.transformers.optimizer import optimize_model

from pipeline.model.model_file import save_model

if TYPE_CHECKING:
    from pathlib import Path


def convert_to_half(source: Path, target: Path) -> Path:
    """Weights and activations in 16 bits; the logits stay 32 bits wide.

    Normalisation and GELU become one kernel each. Values beyond 65,504 become infinite, which the
    gate on finite outputs sees. Weights that are still too many for one file lie beside `target`.
    """
    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    # 0 heads and width: taken from the graph itself.
    model = optimize_model(str(source), model_type="bert", num_heads=0, hidden_size=0, opt_level=0)
    model.convert_float_to_float16(keep_io_types=True)
    model.topological_sort()
    return save_model(model.model, target)
