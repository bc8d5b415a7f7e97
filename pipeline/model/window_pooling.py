"""The windows of a record into one answer, for training: `pipeline.heads` does it for scoring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from schemas.task import WindowPooling


def pool_windows(
    logits: Tensor, rows: Tensor, n_tokens: Tensor, *, n_records: int, how: WindowPooling
) -> Tensor:
    """The records' logits `(R, L)` from those of all their windows `(W, L)`, in any order.

    `rows` `(W,)` says which record a window is of, `n_tokens` `(W,)` how long it is. `mean` is
    weighted by tokens, `max` is of each logit, `first` takes the window that comes first. For
    `attention` the logits are `(W, L + 1)`: the last column, by softmax over the windows of a
    record, is each window's weight in the mean (Ilse et al. 2018, without its gate). A record
    without windows has zeros.
    """
    if how == "attention":
        weights = _softmax_by_record(logits[:, -1], rows, n_records)
        return _weighted_sum(logits[:, :-1], weights, rows, n_records)
    if how == "max":
        zeros = logits.new_zeros(n_records, logits.shape[1])
        index = rows[:, None].expand_as(logits)
        return zeros.scatter_reduce(0, index, logits, "amax", include_self=False)
    if how == "first":
        order = torch.arange(len(rows), device=rows.device)
        last = torch.full((n_records,), len(rows), device=rows.device)
        first = order == last.scatter_reduce(0, rows, order, "amin")[rows]
        return logits.new_zeros(n_records, logits.shape[1]).index_copy(
            0, rows[first], logits[first]
        )
    tokens = n_tokens.to(logits.dtype)
    total = tokens.new_zeros(n_records).index_add(0, rows, tokens)
    return _weighted_sum(logits, tokens / total[rows], rows, n_records)


def _softmax_by_record(scores: Tensor, rows: Tensor, n_records: int) -> Tensor:
    """Softmax of `(W,)` over the windows of each record."""
    floor = scores.new_full((n_records,), -torch.inf)
    # A constant to every record: it moves no value, and so no gradient.
    peak = floor.scatter_reduce(0, rows, scores.detach(), "amax")
    powers = torch.exp(scores - peak[rows])
    return powers / powers.new_zeros(n_records).index_add(0, rows, powers)[rows]


def _weighted_sum(logits: Tensor, weights: Tensor, rows: Tensor, n_records: int) -> Tensor:
    zeros = logits.new_zeros(n_records, logits.shape[1])
    return zeros.index_add(0, rows, logits * weights[:, None])
