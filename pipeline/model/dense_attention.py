"""Longformer's attention written without chunks, for graphs that hold for texts of any length."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.model.layers import encoder_layers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention


class DenseAttention(nn.Module):
    """The numbers of a `LongformerSelfAttention` by its own weights, over all pairs of tokens.

    A trace of the original writes down into how many pieces it cut the text. Here every token looks
    at every other, and what is out of its reach is masked (Beltagy et al. 2020, section 3): for
    windows of a few hundred tokens that costs about as much.
    """

    def __init__(self, original: LongformerSelfAttention) -> None:
        super().__init__()
        self.original = original

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        is_index_masked: Tensor,
        is_index_global_attn: Tensor,
        **unused: Any,
    ) -> tuple[Tensor]:
        """New hidden states `(B, T, H)`; the masks `(B, T)` mark padding and global tokens."""
        del attention_mask, unused  # the masks say the same, and nobody asks for weights
        is_global = is_index_global_attn[:, None, None, :]  # (B, 1, 1, T), by key
        is_there = ~is_index_masked[:, None, None, :]
        in_reach = (self._is_near(hidden_states) & is_there) | is_global
        local = self._attend(hidden_states, in_reach, kind="")
        # A token of padding is answered with zeros, as the original does.
        local = local.masked_fill(is_index_masked[:, :, None], 0.0)
        whole = self._attend(hidden_states, is_there, kind="_global")
        return (torch.where(is_index_global_attn[:, :, None], whole, local),)

    def _is_near(self, hidden_states: Tensor) -> Tensor:
        """Marks `(T, T)` the pairs of tokens within half of the attention window."""
        # A sum over a row of ones, so that the length stays free in the graph.
        places = torch.ones_like(hidden_states[0, :, 0], dtype=torch.int64).cumsum(0)
        distance = (places[:, None] - places[None, :]).abs()
        return torch.le(distance, self.original.one_sided_attn_window_size)

    def _attend(self, hidden_states: Tensor, is_seen: Tensor, *, kind: str) -> Tensor:
        """Attention `(B, T, H)` by the projections of one kind, over keys that are seen."""
        query, key, value = (
            self._heads(getattr(self.original, f"{name}{kind}")(hidden_states))
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])  # (B, heads, T, T)
        weights = scores.masked_fill(~is_seen, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return (weights @ value).transpose(1, 2).flatten(2)

    def _heads(self, projected: Tensor) -> Tensor:
        return torch.unflatten(projected, 2, (self.original.num_heads, -1)).transpose(1, 2)


@contextmanager
def dense_attention(encoder: PreTrainedModel) -> Iterator[None]:
    """Inside the block a Longformer encoder attends without chunks and pads nothing."""
    layers: list[Any] = encoder_layers(encoder)
    for layer in layers:
        layer.attention.self = DenseAttention(layer.attention.self)
    encoder._pad_to_window_size = _pad_nothing
    try:
        yield
    finally:
        del encoder._pad_to_window_size
        for layer in layers:
            layer.attention.self = layer.attention.self.original


def _pad_nothing(*, pad_token_id: int, **inputs: Any) -> tuple[Any, ...]:
    del pad_token_id
    names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
    return (0, *(inputs[name] for name in names))
