"""Words of the corpus that become pieces of their own, and how the model comes to know them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transformers import PreTrainedModel

    from pipeline.model.pretrain.corpus import Text
    from pipeline.model.pretrain.pieces import PieceTokenizer

_MIN_CHARS = 2


@dataclass(frozen=True, slots=True)
class NewWord:
    """A word that the vocabulary has no piece for, with the ids that it is cut into so far."""

    word: str
    count: int
    pieces: tuple[int, ...]

    @property
    def gain(self) -> int:
        """How many pieces the corpus is shorter with the word as one."""
        return self.count * (len(self.pieces) - 1)


def choose_words(
    texts: Sequence[Text], tokenizer: PieceTokenizer, *, limit: int, min_count: int
) -> list[NewWord]:
    """The words that shorten the corpus most, at most `limit`; equal ones in the alphabet's order.

    Only words of letters and digits with a letter among them; none of which a piece is unknown,
    since the mean of unknowns says nothing.

    Raises:
        ConfigError: the tokenizer does not cut whole words, so that there is no telling a word.
    """
    if not tokenizer.is_wordpiece:
        raise ConfigError(
            "pretrain.new_tokens is for backbones of BERT's kind (WordPiece); "
            "set it to 0, or choose another train.backbone"
        )
    counts = Counter(
        word for text in texts for part in text.parts for word in tokenizer.words(part)
    )
    frequent = sorted(w for w, n in counts.items() if n >= min_count and _is_plain(w))
    found = [
        NewWord(word, counts[word], pieces.ids)
        for word, pieces in zip(frequent, tokenizer.pieces(frequent), strict=True)
        if tokenizer.special_ids.isdisjoint(pieces.ids)
    ]
    cut = [word for word in found if len(word.pieces) > 1]
    return sorted(cut, key=lambda word: (-word.gain, word.word))[:limit]


def extend_tokenizer(source: Path, target: Path, words: Sequence[NewWord]) -> dict[str, int]:
    """Writes the tokenizer with the words added; answers their ids.

    They are ordinary tokens, never control ones, and found as whole words in normalised text only.
    """
    tokenizer = Tokenizer.from_file(str(source))
    tokenizer.add_tokens(
        [AddedToken(each.word, single_word=True, normalized=True, special=False) for each in words]
    )
    tokenizer.save(str(target))
    known = tokenizer.get_vocab()
    return {each.word: int(known[each.word]) for each in words}


@torch.no_grad()
def extend_model(model: PreTrainedModel, pieces: dict[int, tuple[int, ...]]) -> None:
    """Gives each new id the mean of its pieces' embeddings, in the output layer as well.

    The output bias, a word's frequency in the main, becomes the mean of its pieces' too. A
    vocabulary that was padded to a round size keeps its size while there is room.
    """
    if not pieces:
        return
    needed = max(pieces) + 1
    if model.get_input_embeddings().weight.shape[0] < needed:
        model.resize_token_embeddings(needed, mean_resizing=False)
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]
    tables = [
        table
        for layer in layers
        for table in (getattr(layer, "weight", None), getattr(layer, "bias", None))
        if table is not None
    ]
    distinct = {id(table): table for table in tables}  # a tied one once
    for table in distinct.values():
        for new_id, old_ids in pieces.items():
            table[new_id] = table[list(old_ids)].mean(dim=0)


def _is_plain(word: str) -> bool:
    return len(word) >= _MIN_CHARS and word.isalnum() and any(char.isalpha() for char in word)
