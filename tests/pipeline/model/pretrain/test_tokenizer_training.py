from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.model.pretrain.pieces import PieceTokenizer, pieces_per_word
from pipeline.model.pretrain.tokenizer_training import CONTROL, train_tokenizer
from schemas.pretrain import TokenizerTraining

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.model.pretrain.corpus import Corpus


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_learned_tokenizer_fits_its_corpus_and_keeps_control_tokens_apart(
    kind: str, corpus: Corpus, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    config = TokenizerTraining.model_validate({"model": kind, "vocab_size": 300})
    size = train_tokenizer(corpus.train, config, path)
    tokenizer = PieceTokenizer(path)
    assert size == tokenizer.vocabulary_size <= 300
    assert tokenizer.special_tokens == tuple(sorted(CONTROL))
    assert tokenizer.pad_id == 0
    assert tokenizer.single.gaps == ((2,), (3,))
    assert tokenizer.pair.types == (0, 1)
    assert tokenizer.mask_id == 4
    # So small a corpus leaves SentencePiece's way of counting few pieces but letters.
    assert pieces_per_word(tokenizer.documents(corpus.train)) < (4 if kind == "unigram" else 1.6)
    unseen = "the app [SEP] crashed [MASK]"
    (pieces,) = tokenizer.pieces([unseen])
    assert pieces.ids
    assert not {0, 2, 3, 4} & set(pieces.ids)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_same_corpus_gives_the_same_file(kind: str, corpus: Corpus, tmp_path: Path) -> None:
    config = TokenizerTraining.model_validate({"model": kind, "vocab_size": 300})
    for name in ("one.json", "two.json"):
        train_tokenizer(corpus.train, config, tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_wordpiece_lowers_case(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    train_tokenizer(corpus.train, TokenizerTraining(vocab_size=300), path)
    lower, upper = PieceTokenizer(path).pieces(["the invoice", "The INVOICE"])
    assert lower.ids == upper.ids
    assert lower.n_words == 2
