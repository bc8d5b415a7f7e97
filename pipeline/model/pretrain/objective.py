"""What is learned from: hidden pieces, or that a text's two dropout views belong together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.model.batches import PAD_MULTIPLE
from pipeline.model.network import pool_tokens
from pipeline.model.pretrain.masking import IGNORED
from pipeline.model.pretrain.packing import NO_PAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from pipeline.model.network import Pooling
    from pipeline.model.pretrain.masking import Example


class Objective(nn.Module, ABC):
    """Two losses `(2,)` of a batch, each a sum: over what is asked for, and over pairs."""

    model: PreTrainedModel

    @abstractmethod
    def weights(self, examples: Sequence[Example]) -> Tensor:
        """What to divide the two sums by `(2,)` for the loss of a whole batch, at least 1."""


class MaskedLanguage(Objective):
    """Cross-entropy of hidden pieces and, where the model asks it, of the next-sentence question.

    The head, a product with the whole vocabulary, only sees hidden places: about a seventh.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._asked: Tensor | None = None
        model.base_model.register_forward_hook(self._keep_asked)

    def weights(self, examples: Sequence[Example]) -> Tensor:
        """Hidden pieces, and pairs."""
        pieces = sum(example.n_labels for example in examples)
        pairs = sum(example.next_label != NO_PAIR for example in examples)
        return torch.tensor([max(1, pieces), max(1, pairs)], dtype=torch.float32)

    def forward(self, labels: Tensor, next_labels: Tensor, **inputs: Tensor) -> Tensor:
        """Losses `(2,)`; ids, mask and segments `(B, T)`, labels `(B, T)` and pairs' `(B,)`."""
        self._asked = labels != IGNORED
        try:
            answer = self.model(**inputs)
        finally:
            self._asked = None
        logits = answer["prediction_logits" if "prediction_logits" in answer else "logits"][0]
        pieces = nn.functional.cross_entropy(
            logits.float(), labels[labels != IGNORED], reduction="sum"
        )  # logits (N, V) of the N hidden pieces
        relation = answer.get("seq_relationship_logits")
        if relation is None:
            return torch.stack([pieces, torch.zeros_like(pieces)])
        pairs = nn.functional.cross_entropy(
            relation.float(), next_labels, ignore_index=NO_PAIR, reduction="sum"
        )
        return torch.stack([pieces, pairs])

    def _keep_asked(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        if self._asked is not None:
            output.last_hidden_state = output.last_hidden_state[self._asked].unsqueeze(0)
        return output


class SimCse(Objective):
    """Which of the batch's texts is the same text under another dropout? (Gao et al. 2021)."""

    def __init__(self, model: PreTrainedModel, *, pooling: Pooling, temperature: float) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.temperature = temperature

    def weights(self, examples: Sequence[Example]) -> Tensor:
        """Texts; there are no pairs."""
        return torch.tensor([max(1, len(examples)), 1], dtype=torch.float32)

    def forward(self, labels: Tensor, next_labels: Tensor, **inputs: Tensor) -> Tensor:
        """Losses `(2,)` of ids, mask and segments `(B, T)`; the second is 0."""
        del labels, next_labels
        twice = {name: torch.cat([tensor, tensor]) for name, tensor in inputs.items()}
        hidden = self.model(**twice).last_hidden_state  # (2B, T, H)
        pooled = pool_tokens(hidden, twice["attention_mask"], self.pooling)
        vectors = nn.functional.normalize(pooled.float())
        first, second = vectors.chunk(2)
        scores = first @ second.T / self.temperature  # (B, B)
        twins = torch.arange(len(scores))
        loss = nn.functional.cross_entropy(scores, twins, reduction="sum")
        return torch.stack([loss, torch.zeros_like(loss)])


def collate(examples: Sequence[Example], *, pad_id: int, segments: bool) -> dict[str, Tensor]:
    """The tensors of a batch, padded to a multiple of eight; `segments` as the model has them."""
    longest = max(len(example) for example in examples)
    width = -(-longest // PAD_MULTIPLE) * PAD_MULTIPLE
    shape = (len(examples), width)
    ids = np.full(shape, pad_id, dtype=np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, example in enumerate(examples):
        stop = len(example)
        ids[row, :stop], labels[row, :stop] = example.ids, example.labels
        types[row, :stop], mask[row, :stop] = example.types, 1
    arrays = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    arrays |= {"token_type_ids": types} if segments else {}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return tensors | {"next_labels": torch.tensor([example.next_label for example in examples])}
