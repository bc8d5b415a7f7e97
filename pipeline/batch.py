"""Windows into arrays, padded or of equal length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.window import Window


def window_inputs(
    windows: Sequence[Window], *, pad_id: int = 0, multiple: int = 1
) -> dict[str, npt.NDArray[np.int64]]:
    """Arrays `(B, T)` of ids, mask and segment ids, padded on the right to the longest window."""
    longest = max(window.n_tokens for window in windows)
    width = -(-longest // multiple) * multiple
    shape = (len(windows), width)
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    types = np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        input_ids[row, : window.n_tokens] = window.input_ids
        mask[row, : window.n_tokens] = 1
        types[row, : window.n_tokens] = window.type_ids
    return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": types}


def equal_inputs(windows: Sequence[Window]) -> dict[str, npt.NDArray[np.int64]]:
    """Arrays `(B, T)` of ids, mask and segment ids of windows of equal length; no padding."""
    input_ids = np.array([window.input_ids for window in windows], dtype=np.int64)
    types = np.array([window.type_ids for window in windows], dtype=np.int64)
    mask = np.ones_like(input_ids)
    return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": types}
