"""No text is lost, and every piece is in exactly one place."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model.pretrain.packing import (
    CONTROL,
    FOLLOWS,
    NO_PAIR,
    RANDOM,
    PieceSequence,
    load_sequences,
    pack,
    pair_up,
    save_sequences,
)
from pipeline.model.pretrain.pieces import Document, Pieces
from pipeline.window import WindowTemplate
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

CLS, SEP = 2, 3
SINGLE = WindowTemplate(gaps=((CLS,), (SEP,)), types=(0,), gap_types=((0,), (0,)))
PAIR = WindowTemplate(gaps=((CLS,), (SEP,), (SEP,)), types=(0, 1), gap_types=((0,), (0,), (1,)))


def text(first_id: int, *word_lengths: int, first_word: int = 0) -> Pieces:
    """Words of so many pieces; ids count up, so that each piece is told apart."""
    words = [first_word + word for word, size in enumerate(word_lengths) for _ in range(size)]
    ids = tuple(range(first_id, first_id + len(words)))
    return Pieces(ids, tuple(words), (1,) * len(words))


@st.composite
def documents(draw: st.DrawFn) -> list[Document]:
    shapes = draw(st.lists(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=8),
                                    min_size=1, max_size=2), min_size=1, max_size=8))  # fmt: skip
    made, first_id = [], 10
    for key, shape in enumerate(shapes):
        parts, word = [], 0
        for lengths in shape:
            parts.append(text(first_id, *lengths, first_word=word))
            first_id, word = first_id + sum(lengths), word + len(lengths)
        made.append(Document(key, tuple(parts)))
    return made


def text_ids(sequences: list[PieceSequence]) -> list[int]:
    return [
        token_id
        for sequence in sequences
        for token_id, word in zip(sequence.ids, sequence.words, strict=True)
        if word != CONTROL
    ]


def all_ids(made: list[Document]) -> list[int]:
    return [token_id for each in made for part in each.parts for token_id in part.ids]


@settings(max_examples=200, deadline=None)
@given(documents(), st.integers(4, 24), st.booleans())
def test_every_piece_is_packed_once_in_order(
    made: list[Document], max_tokens: int, packed: bool
) -> None:
    sequences = pack(made, template=SINGLE, max_tokens=max_tokens, packed=packed)
    assert text_ids(sequences) == all_ids(made)
    for sequence in sequences:
        assert len(sequence) <= max_tokens
        assert (sequence.ids[0], sequence.ids[-1]) == (CLS, SEP)
        runs = [word for word, _ in groupby(sequence.words) if word != CONTROL]
        assert len(set(runs)) == len(runs)  # two words of a sequence never share a number
        lengths = {len(sequence.ids), len(sequence.words), len(sequence.widths)}
        assert lengths == {len(sequence.types)}
    if not packed:
        assert len(sequences) >= len(made)


@settings(max_examples=200, deadline=None)
@given(documents(), st.integers(8, 24), st.integers(0, 5))
def test_pairs_hold_every_piece_once(made: list[Document], max_tokens: int, seed: int) -> None:
    pairs = pair_up(made, single=SINGLE, pair=PAIR, max_tokens=max_tokens, seed=seed)
    assert Counter(text_ids(pairs)) == Counter(all_ids(made))
    for sequence in pairs:
        assert len(sequence) <= max_tokens
        inner = [at for at, token in enumerate(sequence.ids) if token == SEP]
        assert len(inner) == (1 if sequence.next_label == NO_PAIR else 2)
        if sequence.next_label == FOLLOWS:  # ids count up, so the second half begins right behind
            assert sequence.ids[inner[0] - 1] + 1 == sequence.ids[inner[0] + 1]


def test_short_texts_share_a_sequence_with_separators_between() -> None:
    made = [Document(key, (text(10 * key, 1, 2),)) for key in (1, 2, 3)]
    first, second = pack(made, template=SINGLE, max_tokens=10, packed=True)
    assert first.ids == (CLS, 10, 11, 12, SEP, 20, 21, 22, SEP)
    assert first.words == (CONTROL, 0, 1, 1, CONTROL, 2, 3, 3, CONTROL)
    assert second.ids == (CLS, 30, 31, 32, SEP)
    assert (first.key, second.key) == (1, 3)
    alone = pack(made, template=SINGLE, max_tokens=10, packed=False)
    assert [len(each) for each in alone] == [5, 5, 5]


@pytest.mark.parametrize(
    ("word_lengths", "cut"),
    [
        ((3, 3, 2), [(10, 11, 12), (13, 14, 15, 16, 17)]),
        ((7,), [(10, 11, 12, 13, 14), (15, 16)]),
    ],
)
def test_a_long_text_is_cut_at_a_word_and_a_long_word_anywhere(
    word_lengths: tuple[int, ...], cut: list[tuple[int, ...]]
) -> None:
    made = [Document(1, (text(10, *word_lengths),))]
    sequences = pack(made, template=SINGLE, max_tokens=7, packed=True)
    assert [sequence.ids[1:-1] for sequence in sequences] == cut


def test_half_of_the_pairs_have_another_second_half() -> None:
    made = [Document(key, (text(100 * key + 10, 1, 1, 1, 1),)) for key in range(400)]
    pairs = pair_up(made, single=SINGLE, pair=PAIR, max_tokens=16, seed=1)
    random_ones = [pair for pair in pairs if pair.next_label == RANDOM]
    assert 160 < len(random_ones) < 240
    assert all(pair.ids[2] + 1 != pair.ids[4] for pair in random_ones)
    assert pairs[0].types == (0, 0, 0, 0, 1, 1, 1)
    again = pair_up(made, single=SINGLE, pair=PAIR, max_tokens=16, seed=1)
    assert again == pairs
    assert pair_up(made, single=SINGLE, pair=PAIR, max_tokens=16, seed=2) != pairs


def test_a_subject_and_its_body_are_the_two_halves() -> None:
    made = [Document(1, (text(10, 1, 1), text(12, 1, 1, 1, first_word=2)))]
    (pair,) = pair_up(made, single=SINGLE, pair=PAIR, max_tokens=16, seed=1)
    assert pair.ids == (CLS, 10, 11, SEP, 12, 13, 14, SEP)
    assert all(one <= other for one, other in pairwise(pair.types))


def test_no_room_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"pretrain\.max_tokens 3 leaves no room for text"):
        pack([], template=SINGLE, max_tokens=3, packed=True)
    with pytest.raises(ConfigError, match=r"pretrain\.max_tokens 4 leaves no room for pairs"):
        pair_up([], single=SINGLE, pair=PAIR, max_tokens=4, seed=1)


def test_sequences_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = [Document(7 << 50, (text(10, 1, 2),)), Document(2, (text(20, 3),))]
    sequences = pack(made, template=SINGLE, max_tokens=10, packed=False)
    sequences += pair_up(made, single=SINGLE, pair=PAIR, max_tokens=10, seed=1)
    save_sequences(sequences, tmp_path / "train.parquet")
    assert load_sequences(tmp_path / "train.parquet") == sequences
