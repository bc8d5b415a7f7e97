"""Texts as pieces that know which word they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tokenizers.models import WordPiece

from pipeline.engines.tokenizer import MASKS, BackboneTokenizer
from pipeline.window import Tokens
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.pretrain.corpus import Text

_TEXTS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Pieces:
    """Ids of a text's pieces, the number of each one's word, and its width in characters."""

    ids: tuple[int, ...]
    words: tuple[int, ...]
    widths: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, span: slice) -> Pieces:
        return Pieces(self.ids[span], self.words[span], self.widths[span])

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(self.ids + other.ids, self.words + other.words, self.widths + other.widths)

    @property
    def n_words(self) -> int:
        """How many words there are: runs of pieces with one number."""
        return sum(1 for _ in groupby(self.words))


@dataclass(frozen=True, slots=True)
class Document:
    """A text's parts as pieces; words are numbered through all of them."""

    key: int
    parts: tuple[Pieces, ...]


class PieceTokenizer(BackboneTokenizer):
    """The backbone's tokenizer, and what pretraining needs to know of it beside ids.

    Raises:
        ArtifactError: the file is missing or is not a tokenizer.
    """

    @property
    def mask_id(self) -> int:
        """Id of the mask token.

        Raises:
            ConfigError: the vocabulary has none.
        """
        if (token_id := super().mask_id) is not None:
            return token_id
        raise ConfigError(
            f"the backbone's vocabulary has none of {', '.join(MASKS)}, so nothing can be hidden; "
            f"choose another train.backbone or pretrain.objective=simcse"
        )

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that are no text: control tokens, and the unknown one."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        special = {token_id for token_id, token in added if token.special}
        unknown = set() if self.unk_id is None else {self.unk_id}
        return frozenset(special | self._control | unknown)

    @property
    def is_wordpiece(self) -> bool:
        """Whether words are cut as BERT cuts them."""
        return isinstance(self._tokenizer.model, WordPiece)

    def words(self, text: str) -> list[str]:
        """The normalised words of a text, before they are cut into pieces."""
        normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        plain = normalizer.normalize_str(text) if normalizer else text
        return [word for word, _ in splitter.pre_tokenize_str(plain)] if splitter else plain.split()

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Pieces of each text, without control tokens: no text can make one."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        found = []
        for text, encoding in zip(texts, encodings, strict=True):
            if self._control.isdisjoint(encoding.ids):
                tokens = Tokens(tuple(encoding.ids), tuple(encoding.offsets))
                words = tuple(word or 0 for word in encoding.word_ids)
            else:
                tokens = self._without_control(text, encoding.ids, encoding.offsets)
                words = tuple(start for start, _ in tokens.offsets)
            widths = tuple(stop - start for start, stop in tokens.offsets)
            found.append(Pieces(tokens.ids, words, widths))
        return found

    def documents(self, texts: Sequence[Text]) -> list[Document]:
        """The texts as pieces, blank parts left out."""
        made = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[start : start + _TEXTS_AT_ONCE]
            pieces = iter(self.pieces([part for text in some for part in text.parts]))
            for text in some:
                parts = [next(pieces) for _ in text.parts]
                made.append(Document(text.key, _numbered_through(parts)))
        return made


def _numbered_through(parts: Sequence[Pieces]) -> tuple[Pieces, ...]:
    numbered = []
    first = 0
    for part in parts:
        if part.ids:
            words = tuple(first + word for word in part.words)
            numbered.append(Pieces(part.ids, words, part.widths))
            first = words[-1] + 1
    return tuple(numbered)


def unknown_share(documents: Sequence[Document], unk_id: int | None) -> float:
    """Share of the words that the vocabulary cannot spell; 0 where it can spell everything."""
    parts = [part for document in documents for part in document.parts]
    unknown = sum(
        len({word for token, word in zip(part.ids, part.words, strict=True) if token == unk_id})
        for part in parts
    )
    return unknown / max(1, sum(part.n_words for part in parts))


def pieces_per_word(documents: Sequence[Document]) -> float:
    """Mean number of pieces of a word; 1 where every word is a piece of its own."""
    parts = [part for document in documents for part in document.parts]
    return sum(map(len, parts)) / max(1, sum(part.n_words for part in parts))
