from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pipeline.model.pretrain.masking import IGNORED, Masker
from pipeline.model.pretrain.packing import CONTROL, PieceSequence, pack
from schemas.pretrain import PretrainConfig

if TYPE_CHECKING:
    from pipeline.model.pretrain.corpus import Corpus
    from pipeline.model.pretrain.pieces import PieceTokenizer


@pytest.fixture
def sequences(piece_tokenizer: PieceTokenizer, corpus: Corpus) -> list[PieceSequence]:
    """Packed sequences; `broken` and others are words of several pieces."""
    documents = piece_tokenizer.documents(corpus.train)
    return pack(documents, template=piece_tokenizer.single, max_tokens=48, packed=True)


def masker(tokenizer: PieceTokenizer, **changes: Any) -> Masker:
    return Masker(PretrainConfig.model_validate(changes), tokenizer)


def test_fifteen_percent_are_hidden_in_eighty_ten_ten(
    piece_tokenizer: PieceTokenizer, sequences: list[PieceSequence]
) -> None:
    hider = masker(piece_tokenizer)
    hidden = masked = same = other = text = 0
    for epoch in range(100):
        for number, sequence in enumerate(sequences):
            example = hider.mask(sequence, epoch=epoch, number=number)
            before = np.asarray(sequence.ids)
            asked = example.labels != IGNORED
            text += int((np.asarray(sequence.words) != CONTROL).sum())
            hidden += int(asked.sum())
            masked += int((example.ids[asked] == piece_tokenizer.mask_id).sum())
            same += int((example.ids[asked] == before[asked]).sum())
            other += int(((example.ids != before) & (example.ids != piece_tokenizer.mask_id)).sum())
            assert (example.labels[asked] == before[asked]).all()
            assert (example.ids[~asked] == before[~asked]).all()
    assert hidden > 5000
    assert hidden / text == pytest.approx(0.15, abs=0.01)
    assert masked / hidden == pytest.approx(0.8, abs=0.02)
    assert same / hidden == pytest.approx(0.1, abs=0.02)
    assert other / hidden == pytest.approx(0.1, abs=0.02)


def test_control_tokens_are_neither_hidden_nor_put_in(
    piece_tokenizer: PieceTokenizer, sequences: list[PieceSequence]
) -> None:
    hider = masker(piece_tokenizer, mask_fraction=0.9)
    control = sorted(piece_tokenizer.special_ids - {piece_tokenizer.mask_id})
    for epoch in range(20):
        for number, sequence in enumerate(sequences):
            example = hider.mask(sequence, epoch=epoch, number=number)
            at_control = np.asarray(sequence.words) == CONTROL
            assert (example.labels[at_control] == IGNORED).all()
            assert not np.isin(example.ids[~at_control], control).any()


def test_an_unknown_word_is_not_asked_for(piece_tokenizer: PieceTokenizer) -> None:
    unknown = piece_tokenizer.unk_id
    assert unknown is not None
    sequence = PieceSequence(1, (2, unknown, 3), (CONTROL, 0, CONTROL), (0, 1, 0), (0, 0, 0))
    example = masker(piece_tokenizer).mask(sequence, epoch=0, number=0)
    assert example.n_labels == 0
    assert example.ids.tolist() == [2, unknown, 3]


def test_a_choice_hangs_on_seed_epoch_and_number_alone(
    piece_tokenizer: PieceTokenizer, sequences: list[PieceSequence]
) -> None:
    def labels(seed: int, epoch: int, number: int) -> list[int]:
        hider = masker(piece_tokenizer, seed=seed)
        return hider.mask(sequences[0], epoch=epoch, number=number).labels.tolist()

    first = labels(1, 0, 0)
    assert labels(1, 0, 0) == first
    assert all(labels(*other) != first for other in ((2, 0, 0), (1, 1, 0), (1, 0, 1)))


def test_whole_words_are_hidden_whole(
    piece_tokenizer: PieceTokenizer, sequences: list[PieceSequence]
) -> None:
    hider = masker(piece_tokenizer, whole_word=True)
    several = hidden = text = 0
    for epoch in range(50):
        for number, sequence in enumerate(sequences):
            example = hider.mask(sequence, epoch=epoch, number=number)
            hidden += example.n_labels
            text += sum(word != CONTROL for word in sequence.words)
            places = groupby(range(len(sequence)), key=lambda place: sequence.words[place])
            for word, group in places:
                asked = {bool(example.labels[place] != IGNORED) for place in list(group)}
                if word != CONTROL:
                    assert len(asked) == 1
                    several += asked == {True}
    assert several > 200
    assert hidden / text == pytest.approx(0.15, abs=0.02)
