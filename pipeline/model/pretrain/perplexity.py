"""How well held-out words are guessed, in numbers that do not depend on the vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.pretrain.masking import Example, Flags, Masker
    from pipeline.model.pretrain.packing import PieceSequence


@dataclass(frozen=True, slots=True)
class Question:
    """A held-out sequence with some words hidden; `words` and `chars` are those of what is hidden.

    The same words are hidden whatever the vocabulary: see `questions`.
    """

    example: Example
    words: int
    chars: int


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Negative log-likelihood in nats of all hidden pieces, and how much text they are."""

    nll: float
    pieces: int
    words: int
    chars: int

    @property
    def per_piece(self) -> float:
        """exp(nll / pieces): the size of the vocabulary for a model that knows nothing."""
        return math.exp(self.nll / self.pieces)

    @property
    def per_word(self) -> float:
        """exp(nll / words): comparable between vocabularies."""
        return math.exp(self.nll / self.words)

    @property
    def per_char(self) -> float:
        """exp(nll / characters): comparable between vocabularies."""
        return math.exp(self.nll / self.chars)

    @property
    def metrics(self) -> dict[str, float]:
        """All of it, by name."""
        return {
            "loss": self.nll / self.pieces,
            "perplexity": self.per_piece,
            "perplexity_per_word": self.per_word,
            "perplexity_per_character": self.per_char,
        }


def questions(
    sequences: Sequence[PieceSequence], masker: Masker, *, fraction: float, seed: int
) -> list[Question]:
    """Held-out sequences of one text each, with a fixed choice of whole words hidden.

    Whether a word is hidden hangs on the seed, its text and its number in it, so that two
    vocabularies that agree on what a word is are asked for the same words. All pieces of a word are
    hidden together, and all behind the mask token.

    Raises:
        DataContractError: there is not a word to ask for.
    """
    asked = []
    for sequence in sequences:
        chosen = _chosen(sequence, masker, fraction=fraction, seed=seed)
        if chosen.any():
            words = np.asarray(sequence.words)[chosen]
            chars = int(np.asarray(sequence.widths)[chosen].sum())
            asked.append(Question(masker.hide(sequence, chosen), len(np.unique(words)), chars))
    if not asked:
        raise DataContractError(
            f"no word of {len(sequences)} held-out sequences can be hidden; "
            f"raise pretrain.valid_fraction or pretrain.mask_fraction"
        )
    return asked


def total(nll: float, asked: Sequence[Question]) -> Perplexity:
    """The perplexity of all questions whose pieces have this negative log-likelihood together."""
    return Perplexity(
        nll=nll,
        pieces=sum(each.example.n_labels for each in asked),
        words=sum(each.words for each in asked),
        chars=sum(each.chars for each in asked),
    )


def _chosen(sequence: PieceSequence, masker: Masker, *, fraction: float, seed: int) -> Flags:
    words = np.asarray(sequence.words)
    maskable = masker.maskable(sequence)
    if not maskable.any():
        return maskable
    draws = np.random.default_rng([seed, sequence.key]).random(int(words.max()) + 1)
    chosen: Flags = maskable & (draws[words] < fraction)
    return chosen
