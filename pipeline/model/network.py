"""One encoder with a linear layer that holds all heads side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@torch.no_grad()
def check_length(model: Classifier, *, max_tokens: int) -> None:
    """Makes sure that `model` has positions for windows of `max_tokens`; leaves it in evaluation.

    Raises:
        ConfigError: it has fewer.
    """
    ids = torch.full((1, max_tokens), 2)  # any token but padding, which has no position in RoBERTa
    try:
        model.eval()(ids, torch.ones_like(ids))
    except (IndexError, RuntimeError) as error:
        raise ConfigError(
            f"window.max_tokens {max_tokens} is more than the backbone reads ({error}); lower it"
        ) from error


def head_loss(
    logits: Tensor,
    targets: Mapping[str, Tensor],
    heads: tuple[HeadSlice, ...],
    *,
    smoothing: float,
    counts: Mapping[str, int] | None = None,
) -> Tensor:
    """Weighted sum of the heads' losses; a record without a head's label does not count there.

    `targets` has for a `single` head indices `(B,)`, -100 where missing; for a `multi` head zeros
    and ones `(B, L)`, NaN where missing. Each head's loss is the mean over `counts` known labels:
    those of this batch, unless it is one worker's share of a larger one.
    """
    counts = known_counts(targets) if counts is None else counts
    total = 0.0 * logits.sum()  # keeps its gradient where no label is known
    for head in heads:
        if not counts[head.name]:
            continue
        scores, target = logits[:, head.columns], targets[head.name]
        if head.config.kind == "single":
            summed = nn.functional.cross_entropy(
                scores, target, label_smoothing=smoothing, reduction="sum"
            )
        else:
            known = torch.isfinite(target)
            summed = nn.functional.binary_cross_entropy_with_logits(
                scores[known], target[known], reduction="sum"
            )
        total = total + head.config.loss_weight * summed / counts[head.name]
    return total


def known_counts(targets: Mapping[str, Tensor]) -> dict[str, int]:
    """How many labels of each head are known: records, or for `multi` single yes/no answers."""
    return {
        name: int((torch.isfinite(target) if target.is_floating_point() else target >= 0).sum())
        for name, target in targets.items()
    }
