"""One encoder with a linear layer that holds all heads side by side."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pipeline.heads import HeadSlice

Pooling = Literal["mean", "cls"]


class Classifier(nn.Module):
    """Logits `(B, L)` of all heads for windows `(B, T)`."""

    def __init__(
        self, encoder: nn.Module, *, n_logits: int, pooling: Pooling, dropout: float
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.heads = nn.Linear(int(encoder.config.hidden_size), n_logits)  # type: ignore[union-attr, arg-type]
        nn.init.normal_(self.heads.weight, std=0.02)
        nn.init.zeros_(self.heads.bias)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits `(B, L)` from ids, mask and, where the encoder has segments, segment ids."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        hidden = self.encoder(**inputs).last_hidden_state  # (B, T, H)
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            weights = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
            # A fully masked row must give numbers, not NaN: the clamp guards the division.
            pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        logits: Tensor = self.heads(self.dropout(pooled))
        return logits




def head_loss(
    logits: Tensor, targets: dict[str, Tensor], heads: tuple[HeadSlice, ...], *, smoothing: float
) -> Tensor:
    """Weighted sum of the heads' losses; a record without a head's label does not count there.

    `targets` has for a `single` head indices `(B,)`, -100 where missing; for a `multi` head zeros
    and ones `(B, L)`, NaN where missing.
    """
    total = logits.new_zeros(())
    for head in heads:
        scores, target = logits[:, head.columns], targets[head.name]
        if head.config.kind == "single":
            if bool((target >= 0).any()):
                loss = nn.functional.cross_entropy(scores, target, label_smoothing=smoothing)
                total = total + head.config.loss_weight * loss
            continue
        known = torch.isfinite(target)
        if bool(known.any()):
            loss = nn.functional.binary_cross_entropy_with_logits(scores[known], target[known])
            total = total + head.config.loss_weight * loss
    return total
