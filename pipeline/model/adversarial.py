"""Training against small moves of the embeddings: the fast gradient method."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from pipeline.model.ranks import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn
    from transformers import PreTrainedModel


class EmbeddingAdversary:
    """Moves the word embeddings where the loss grows fastest, and back.

    Miyato et al. 2017 move the embedded text by `epsilon` along its normalised gradient. As is
    usual with pretrained encoders it is the embedding matrix that moves here: a token that stands
    in several texts of a batch moves the same way in all of them.
    """

    def __init__(self, encoder: PreTrainedModel, *, epsilon: float) -> None:
        self._weight: nn.Parameter = encoder.get_input_embeddings().weight
        self._epsilon = epsilon

    @contextmanager
    def moved(self) -> Iterator[None]:
        """The embeddings are moved inside the block, and the same bits as before after it.

        Their gradient must be there. One that is zero or not finite (fp16 overflows now and then)
        has no direction: nothing moves.
        """
        weight, gradient = self._weight, self._weight.grad
        if gradient is None:
            raise RuntimeError("the embeddings have no gradient: go backward before they move")
        before = weight.detach().clone()
        norm = whole_number(torch.linalg.vector_norm(gradient))
        if 0.0 < norm < float("inf"):
            with torch.no_grad():
                weight.add_(gradient, alpha=self._epsilon / norm)
        try:
            yield
        finally:
            with torch.no_grad():
                weight.copy_(before)
