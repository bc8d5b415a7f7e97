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


@dataclass(frozen=True, slots=True)
class NewWord:
    """A word that the vocabulary has no piece for, with the ids that it is cut into so far.

    None of them where the vocabulary cannot even spell it.
    """

    word: str
    count: int
    pieces: tuple[int, ...]

    @property
    def gain(self) -> int:
        """How many pieces the corpus is shorter with the word as one.

        One that was unknown counts as spelled by its characters and one more, so that a single
        character is worth as much as a word of two pieces.
        """
        return self.count * ((len(self.pieces) or len(self.word) + 1) - 1)


def choose_words(
    texts: Sequence[Text], tokenizer: PieceTokenizer, *, limit: int, min_count: int
) -> list[NewWord]:
    """The words that shorten the corpus most, at most `limit`; equal ones in the alphabet's order.

    Only words of letters and digits with a letter among them. Unknown ones are the most lost: of
    a text in Chinese, whose words are its characters, an English vocabulary spells few.

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
        NewWord(word, counts[word], () if tokenizer.unk_id in pieces.ids else pieces.ids)
        for word, pieces in zip(frequent, tokenizer.pieces(frequent), strict=True)
        if len(pieces) > 1 or tokenizer.unk_id in pieces.ids
    ]
    return sorted(found, key=lambda word: (-word.gain, word.word))[:limit]


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
def extend_model(model: PreTrainedModel, pieces: dict[int, tuple[int, ...]], *, seed: int) -> None:
    """Gives each new id the mean of its pieces' embeddings, in the output layer as well.

    The output bias, a word's frequency in the main, becomes the mean of its pieces' too. One
    without pieces gets the mean of all and a draw from their spread (Hewitt 2021, "Initializing
    new word embeddings"): with the mean alone all such words would be one. A vocabulary that was
    padded to a round size keeps its size while there is room.
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
    draw = torch.Generator().manual_seed(seed)
    for table in distinct.values():
        old = table[: min(pieces)]
        mean = old.mean(dim=0)
        # A bias is a frequency, and that of an unknown word is no matter of chance.
        spread = old.std(dim=0) if table.dim() > 1 else torch.zeros(())
        for new_id, old_ids in pieces.items():
            if old_ids:
                table[new_id] = table[list(old_ids)].mean(dim=0)
            else:
                noise = torch.randn(spread.shape, generator=draw)
                table[new_id] = mean + spread * noise


def _is_plain(word: str) -> bool:
    return word.isalnum() and any(char.isalpha() for char in word)
