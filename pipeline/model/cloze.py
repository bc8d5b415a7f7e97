"""Cloze heads: the backbone's masked-language head, cut down to the words that stand for labels."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.model.backbone import save_tokenizer
from pipeline.model.masked_head import empty_masked_head, load_masked_head
from pipeline.prompt import mask_of, word_ids
from schemas.bundle import TOKENIZER_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.masked_head import Transform


class ClozeHeads(nn.Module):
    """Puts the logits of cloze heads, at `columns`, into those of all heads.

    `words` has a row for each label, the mean of its words' rows of the vocabulary projection: the
    mean of logits is the logit of the mean. The windows of a task with cloze heads all have
    `mask_id`. So that other ids give numbers as well, one without it is read at its first token.
    """

    def __init__(
        self, transform: Transform, *, words: nn.Linear, mask_id: int, columns: tuple[slice, ...]
    ) -> None:
        super().__init__()
        self.dense, self.activation, self.norm = transform
        self.words = words
        self.mask_id = mask_id
        self.columns = columns

    @property
    def n_logits(self) -> int:
        """How many logits are answered here."""
        return self.words.out_features

    def forward(
        self, logits: Tensor, hidden: Tensor, *, input_ids: Tensor, attention_mask: Tensor
    ) -> Tensor:
        """Logits `(B, L)` of all heads, those of cloze heads replaced by what fits the gap.

        `hidden` `(B, T, H)` are the encoder's states for ids and mask `(B, T)`.
        """
        at_gap = self._at_gap(hidden, input_ids, attention_mask)
        answers = self.words(self.norm(self.activation(self.dense(at_gap))))  # (B, C)
        parts, done, used = [], 0, 0
        for columns in self.columns:
            width = columns.stop - columns.start
            parts += [logits[:, done : columns.start], answers[:, used : used + width]]
            done, used = columns.stop, used + width
        parts.append(logits[:, done:])
        return torch.cat([part for part in parts if part.shape[1]], dim=1)

    def _at_gap(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The state `(B, H)` at the mask token; zeros in a row that is padding alone.

        What attention gives such a row is each engine's own choice.
        """
        # A float, since GPUs of ONNX Runtime find the largest of no other number.
        place = (input_ids == self.mask_id).float().argmax(dim=1)  # (B,), the first of several
        is_text = attention_mask.gather(1, place[:, None]).to(hidden.dtype)  # (B, 1)
        index = place[:, None, None].expand(-1, 1, hidden.shape[2])
        return hidden.gather(1, index)[:, 0] * is_text


def pretrained_cloze(backbone: str, heads: Sequence[HeadSlice]) -> ClozeHeads | None:
    """Cloze heads that answer as the backbone's masked-language head; None where none are asked.

    Raises:
        ConfigError: the backbone has no such head, no mask token, or not one token for a word.
        ArtifactError: the backbone cannot be loaded.
    """
    chosen = [head for head in heads if head.config.cloze is not None]
    if not chosen:
        return None
    tokenizer = _tokenizer(backbone)
    by_head = word_ids({head.name: head.config for head in chosen}, tokenizer)
    labels = [list(ids) for head in chosen for ids in by_head[head.name]]
    transform, projection = load_masked_head(backbone)
    words = nn.Linear(projection.in_features, len(labels))
    with torch.no_grad():
        for row, ids in enumerate(labels):
            words.weight[row] = projection.weight[ids].mean(dim=0)
            words.bias[row] = 0.0 if projection.bias is None else projection.bias[ids].mean()
    return _cloze(transform, words, tokenizer, chosen)


def empty_cloze(folder: Path, heads: Sequence[HeadSlice]) -> ClozeHeads | None:
    """Cloze heads of a checkpoint's form, whose weights are still to come; None as above.

    Raises:
        ArtifactError: the tokenizer is missing.
        ConfigError: encoders of the checkpoint's kind have no masked-language head.
    """
    chosen = [head for head in heads if head.config.cloze is not None]
    if not chosen:
        return None
    transform, projection = empty_masked_head(str(folder))
    for module in transform:
        module.to_empty(device="cpu")
    words = nn.Linear(projection.in_features, sum(head.config.n_scores for head in chosen))
    return _cloze(transform, words, BackboneTokenizer(folder / TOKENIZER_FILE), chosen)


def _cloze(
    transform: Transform, words: nn.Linear, tokenizer: BackboneTokenizer, heads: list[HeadSlice]
) -> ClozeHeads:
    columns = tuple(head.columns for head in heads)
    return ClozeHeads(transform, words=words, mask_id=mask_of(tokenizer), columns=columns)


def _tokenizer(backbone: str) -> BackboneTokenizer:
    with TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER_FILE
        save_tokenizer(backbone, path)
        return BackboneTokenizer(path)
