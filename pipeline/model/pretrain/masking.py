"""Which pieces of a sequence are hidden, and behind what: another choice each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.model.pretrain.packing import CONTROL, NO_PAIR, PieceSequence

if TYPE_CHECKING:
    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.pretrain import PretrainConfig

IGNORED = -100  # the label that torch's cross-entropy leaves out
_MASKED, _RANDOM = 0.8, 0.1  # what stays as it is is the rest; Devlin et al. 2019, section 3.1
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A sequence as it is learned from: ids, segments and labels `(T,)`, IGNORED where not asked.

    `next_label` is the answer to the next-sentence question, or NO_PAIR.
    """

    ids: Integers
    types: Integers
    labels: Integers
    next_label: int = NO_PAIR

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_labels(self) -> int:
        """How many pieces are asked for."""
        return int((self.labels != IGNORED).sum())


class Masker:
    """Hides pieces at random; the same seed, epoch and sequence number give the same choice."""

    def __init__(self, config: PretrainConfig, tokenizer: PieceTokenizer) -> None:
        self._fraction = config.mask_fraction
        self._whole_word = config.whole_word
        self._seed = config.seed
        self._mask_id = tokenizer.mask_id
        self._special = np.zeros(tokenizer.vocabulary_size, dtype=np.bool_)
        self._special[sorted(tokenizer.special_ids)] = True
        self._ordinary = np.flatnonzero(~self._special)

    def maskable(self, sequence: PieceSequence) -> Flags:
        """Where text stands that the vocabulary knows; control tokens are no text."""
        known = ~self._special[np.asarray(sequence.ids)]
        maskable: Flags = known & (np.asarray(sequence.words) != CONTROL)
        return maskable

    def mask(self, sequence: PieceSequence, *, epoch: int, number: int) -> Example:
        """The sequence with `mask_fraction` of its pieces hidden, at least one.

        80 % become the mask token, 10 % a random piece, 10 % stay.
        """
        chooser = np.random.default_rng([self._seed, epoch, number])
        chosen = self._choose(sequence, chooser)
        ids = np.asarray(sequence.ids, dtype=np.int64)
        labels = np.full(len(ids), IGNORED, dtype=np.int64)
        labels[chosen] = ids[chosen]
        fates = chooser.random(len(chosen))
        replaced = ids.copy()
        replaced[chosen[fates < _MASKED]] = self._mask_id
        at_random = chosen[(fates >= _MASKED) & (fates < _MASKED + _RANDOM)]
        replaced[at_random] = chooser.choice(self._ordinary, size=len(at_random))
        types = np.asarray(sequence.types, dtype=np.int64)
        return Example(replaced, types, labels, sequence.next_label)

    def hide(self, sequence: PieceSequence, chosen: Flags) -> Example:
        """The sequence with the chosen pieces hidden behind the mask token, all of them."""
        ids = np.asarray(sequence.ids, dtype=np.int64)
        return Example(
            ids=np.where(chosen, self._mask_id, ids),
            types=np.asarray(sequence.types, dtype=np.int64),
            labels=np.where(chosen, ids, IGNORED),
        )

    def _choose(self, sequence: PieceSequence, chooser: Any) -> Integers:
        places = np.flatnonzero(self.maskable(sequence))
        if not len(places):
            return places
        wanted = max(1, round(self._fraction * len(places)))
        if not self._whole_word:
            return np.sort(chooser.permutation(places)[:wanted])
        words = np.asarray(sequence.words)[places]
        groups = np.split(places, np.flatnonzero(np.diff(words)) + 1)
        chosen: list[Integers] = []
        room = wanted
        for index in chooser.permutation(len(groups)):
            # A word over the bound is passed over, as in the original's whole-word masking; where
            # every word is, the first one is hidden.
            if len(groups[index]) <= room:
                chosen.append(groups[index])
                room -= len(groups[index])
        if not chosen:
            chosen.append(groups[int(chooser.integers(len(groups)))])
        return np.sort(np.concatenate(chosen))
