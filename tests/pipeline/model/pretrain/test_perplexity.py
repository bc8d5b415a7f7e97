from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.masking import Masker
from pipeline.model.pretrain.packing import PieceSequence, pack
from pipeline.model.pretrain.perplexity import Perplexity, questions
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.starting import load_start
from pipeline.model.pretrain.vocabulary import NewWord, extend_tokenizer
from schemas.errors import DataContractError
from schemas.pretrain import PretrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.pretrain.corpus import Corpus
    from schemas.task import TaskConfig


def held_out(corpus: Corpus, tokenizer: PieceTokenizer) -> list[PieceSequence]:
    documents = tokenizer.documents(corpus.train)
    return pack(documents, template=tokenizer.single, max_tokens=32, packed=False)


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_pieces(
    piece_tokenizer: PieceTokenizer,
    corpus: Corpus,
    pretrain_task: Callable[..., TaskConfig],
) -> None:
    task = pretrain_task()
    model = load_start(task.train.backbone, task.pretrain).model
    with torch.no_grad():  # every piece gets the score 0
        model.cls.predictions.transform.LayerNorm.weight.zero_()
        model.cls.predictions.transform.LayerNorm.bias.zero_()
        model.cls.predictions.bias.zero_()
    sequences = held_out(corpus, piece_tokenizer)
    lesson = make_lesson(model, task, piece_tokenizer, train=sequences, valid=sequences)
    metrics = lesson.measure()
    size = piece_tokenizer.vocabulary_size
    assert metrics["perplexity"] == pytest.approx(size, rel=1e-4)
    assert metrics["loss"] == pytest.approx(math.log(size), rel=1e-4)
    assert 1 < metrics["perplexity_per_character"] < size < metrics["perplexity_per_word"]


def test_perplexities_by_hand() -> None:
    found = Perplexity(nll=12 * math.log(2), pieces=6, words=3, chars=12)
    assert found.per_piece == pytest.approx(4)
    assert found.per_word == pytest.approx(16)
    assert found.per_char == pytest.approx(2)


def test_the_same_words_are_asked_for_under_a_larger_vocabulary(
    tiny_tokenizer_path: Path, tmp_path: Path, corpus: Corpus
) -> None:
    small = PieceTokenizer(tiny_tokenizer_path)
    words = [NewWord(word, 1, ()) for word in ("time", "fast")]
    extend_tokenizer(tiny_tokenizer_path, tmp_path / "tokenizer.json", words)
    large = PieceTokenizer(tmp_path / "tokenizer.json")
    asked = [
        questions(
            held_out(corpus, tokenizer), Masker(PretrainConfig(), tokenizer), fraction=0.3, seed=5
        )
        for tokenizer in (small, large)
    ]
    (few, many) = [[(each.words, each.chars) for each in some] for some in asked]
    assert few == many
    pieces = [sum(each.example.n_labels for each in some) for some in asked]
    assert pieces[1] < pieces[0]


def test_questions_stay_the_same_and_hide_whole_words_behind_the_mask(
    piece_tokenizer: PieceTokenizer, corpus: Corpus
) -> None:
    masker = Masker(PretrainConfig(), piece_tokenizer)
    sequences = held_out(corpus, piece_tokenizer)
    first, again, other = (
        questions(sequences, masker, fraction=0.15, seed=seed) for seed in (5, 5, 6)
    )

    def labels(some: list[object]) -> list[list[int]]:
        return [each.example.labels.tolist() for each in some]  # type: ignore[attr-defined]

    assert labels(first) == labels(again) != labels(other)
    words = sum(len(set(sequence.words)) - 1 for sequence in sequences)
    assert sum(each.words for each in first) / words == pytest.approx(
        0.15, abs=0.06
    )  # of 364 words
    for each in first:
        hidden = each.example.labels >= 0
        assert (each.example.ids[hidden] == piece_tokenizer.mask_id).all()


def test_nothing_to_ask_for_is_told(piece_tokenizer: PieceTokenizer) -> None:
    masker = Masker(PretrainConfig(), piece_tokenizer)
    with pytest.raises(DataContractError, match="no word of 0 held-out sequences can be hidden"):
        questions([], masker, fraction=0.15, seed=1)
