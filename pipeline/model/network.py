"""One encoder with a linear layer that holds all heads side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline.model.cloze import ClozeHeads
    from pipeline.model.neighbours import Likeness
    from schemas.task import WindowPooling

Pooling = Literal["mean", "cls", "max"]
# Below what any layer norm lets through, and within the range of half precision.
_LOWEST = -1e4


class Classifier(nn.Module):
    """Logits `(B, L)` of all heads for windows `(B, T)`.

    With `window_pooling` `attention` `(B, L + 1)`: the last one says how much a window counts among
    those of its record. `cloze` answers the columns of cloze heads; their rows of the linear layer
    stand idle. With `likeness` set, as it is for export alone, its columns follow the L logits.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        *,
        n_logits: int,
        pooling: Pooling,
        dropout: float,
        window_pooling: WindowPooling = "mean",
        cloze: ClozeHeads | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.cloze = cloze
        self.likeness: Likeness | None = None
        self.pooling = pooling
        self.n_logits = n_logits
        self.dropout = nn.Dropout(dropout)
        n_outputs = n_logits + (window_pooling == "attention")
        self.heads = nn.Linear(encoder.config.hidden_size, n_outputs)
        nn.init.normal_(self.heads.weight, std=0.02)
        nn.init.zeros_(self.heads.bias)
        if cloze is not None and cloze.n_logits == n_outputs:
            self.heads.requires_grad_(False)  # nobody reads it, and ranks would wait for gradients

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits from ids, mask and, where the encoder has segments, segment ids."""
        hidden, vectors = self.encode(input_ids, attention_mask, token_type_ids)
        logits: Tensor = self.heads(self.dropout(vectors))
        if self.cloze is not None:
            logits = self.cloze(logits, hidden, input_ids=input_ids, attention_mask=attention_mask)
        if self.likeness is not None:
            logits = self.likeness(logits, vectors)
        return logits

    def encode(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states `(B, T, H)` and the vector `(B, H)` of each window that heads read."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        if getattr(self.encoder.config, "model_type", "") == "longformer":
            inputs["global_attention_mask"] = self._tokens_that_see_all(input_ids, attention_mask)
        hidden = self.encoder(**inputs).last_hidden_state
        return hidden, pool_tokens(hidden, attention_mask, self.pooling)

    def _tokens_that_see_all(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Marks `(B, T)` a Longformer's tokens that attend to all others, and they to them.

        For classification Beltagy et al. 2020 ("Longformer") put it on the first one; what an
        answer is read from is a task's token too, and so is the gap of cloze heads.
        """
        marks = _first_token(attention_mask)
        if self.cloze is None:
            return marks
        return torch.maximum(marks, (input_ids == self.cloze.mask_id).to(marks.dtype))


def pool_tokens(hidden: Tensor, attention_mask: Tensor, how: Pooling) -> Tensor:
    """One vector `(B, H)` of hidden states `(B, T, H)`; numbers for a fully masked row too."""
    if how == "cls":
        return hidden[:, 0]
    weights = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
    if how == "max":
        lowered = hidden.masked_fill(weights == 0, _LOWEST)
        return lowered.amax(dim=1) * weights.amax(dim=1)  # zeros where all is masked
    # The clamp guards the division by no tokens at all.
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def _first_token(attention_mask: Tensor) -> Tensor:
    """Marks `(B, T)` the first token of each row."""
    rest = torch.zeros_like(attention_mask[:, 1:])
    return torch.cat([torch.ones_like(attention_mask[:, :1]), rest], dim=1)
