"""Logits of whole records: all of their windows read, and pooled as the task asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pipeline.model.batches import tensor_inputs
from pipeline.model.window_pooling import pool_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import WindowPooling

_WINDOWS_AT_ONCE = 64


@torch.no_grad()
def record_logits(
    model: Classifier, examples: Sequence[Example], *, pad_id: int, how: WindowPooling = "mean"
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits `(N, L)` of records, those of their windows pooled; leaves `model` in evaluation."""
    limit = 1 if how == "first" else None
    pairs = [
        (window, row) for row, example in enumerate(examples) for window in example.windows[:limit]
    ]
    pairs.sort(key=lambda pair: pair[0].n_tokens)
    model.eval()
    read = [torch.empty(0, model.heads.out_features)]
    for start in range(0, len(pairs), _WINDOWS_AT_ONCE):
        windows = [window for window, _ in pairs[start : start + _WINDOWS_AT_ONCE]]
        read.append(model(**tensor_inputs(model, windows, pad_id=pad_id)).float().cpu())
    pooled = pool_windows(
        torch.cat(read),
        torch.tensor([row for _, row in pairs], dtype=torch.int64),
        torch.tensor([window.n_tokens for window, _ in pairs], dtype=torch.int64),
        n_records=len(examples),
        how=how,
    )
    return np.asarray(pooled.numpy(), dtype=np.float32)
