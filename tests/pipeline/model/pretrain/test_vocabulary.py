"""New words: which are chosen, what the model knows of them at first, and that a text cannot
make a control token of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from pipeline.model.backbone import save_tokenizer
from pipeline.model.pretrain.corpus import Text
from pipeline.model.pretrain.pieces import (
    Document,
    Pieces,
    PieceTokenizer,
    unknown_share,
)
from pipeline.model.pretrain.vocabulary import (
    NewWord,
    choose_words,
    extend_model,
    extend_tokenizer,
)
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def texts(*parts: str) -> list[Text]:
    return [Text(key, (part,)) for key, part in enumerate(parts)]


def test_words_are_chosen_by_the_pieces_they_save(piece_tokenizer: PieceTokenizer) -> None:
    many = texts(*["Wlan wlan wlan", "router router", "x9 x9 x9 99 99 99 a a a", "once"])
    chosen = choose_words(many, piece_tokenizer, limit=10, min_count=2)
    saved = {each.word: (each.count, each.gain) for each in chosen}
    length = {word: len(piece_tokenizer.pieces([word])[0]) for word in ("wlan", "router", "x9")}
    assert saved == {
        "wlan": (3, 3 * (length["wlan"] - 1)),
        "router": (2, 2 * (length["router"] - 1)),
        "x9": (3, 3 * (length["x9"] - 1)),
    }
    assert [each.gain for each in chosen] == sorted((each.gain for each in chosen), reverse=True)
    assert choose_words(many, piece_tokenizer, limit=1, min_count=2) == chosen[:1]


@pytest.fixture
def bert_path(tiny_tokenizer_path: Path, tmp_path: Path) -> Path:
    """The tiny vocabulary, normalised as BERT's is: Chinese characters are words."""
    raw = json.loads(tiny_tokenizer_path.read_text())
    raw["normalizer"] = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True,
    }  # fmt: skip
    path = tmp_path / "bert.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_word_that_cannot_be_spelled_is_worth_its_characters(bert_path: Path) -> None:
    many = texts("质量很好 качество", "质量差", "质 😀😀😀 ，，，，")
    chosen = choose_words(many, PieceTokenizer(bert_path), limit=4, min_count=1)
    assert [(each.word, each.count, each.pieces, each.gain) for each in chosen] == [
        ("качество", 1, (), 8), ("质", 3, (), 3), ("量", 2, (), 2), ("差", 1, (), 1),
    ]  # fmt: skip


def test_characters_of_another_script_are_found_side_by_side(
    bert_path: Path, tmp_path: Path
) -> None:
    tokenizer = extended(bert_path, tmp_path / "tokenizer.json", "质", "量")
    first = PieceTokenizer(bert_path).vocabulary_size
    (pieces,) = tokenizer.pieces(["质量差"])
    assert pieces.ids == (first, first + 1, tokenizer.unk_id)
    assert pieces.n_words == 3
    documents = tokenizer.documents(texts("质量差", "the 差"))
    assert unknown_share(documents, tokenizer.unk_id) == pytest.approx(2 / 5)
    assert unknown_share(documents, None) == 0


def test_a_word_with_several_unknown_pieces_is_one_unknown_word() -> None:
    part = Pieces(ids=(3, 9, 3, 5, 3), words=(0, 0, 0, 1, 2), widths=(1, 1, 1, 1, 1))
    assert unknown_share([Document(0, (part, part))], 3) == pytest.approx(2 / 3)


def extended(tiny_tokenizer_path: Path, target: Path, *words: str) -> PieceTokenizer:
    plain = PieceTokenizer(tiny_tokenizer_path)
    new = [NewWord(word, 1, plain.pieces([word])[0].ids) for word in words]
    ids = extend_tokenizer(tiny_tokenizer_path, target, new)
    assert list(ids.values()) == list(
        range(plain.vocabulary_size, plain.vocabulary_size + len(words))
    )
    return PieceTokenizer(target)


def test_a_new_word_is_one_piece_and_only_as_a_whole_word(
    tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    plain = PieceTokenizer(tiny_tokenizer_path)
    tokenizer = extended(tiny_tokenizer_path, tmp_path / "tokenizer.json", "wlan")
    new_id = plain.vocabulary_size
    (one, upper, inside, beside) = tokenizer.pieces(["wlan", "WLAN", "wlans", "the wlan, late"])
    assert one.ids == upper.ids == (new_id,)
    assert one.widths == (4,)
    assert inside.ids == plain.pieces(["wlans"])[0].ids
    (old,) = plain.pieces(["the wlan, late"])
    assert new_id in beside.ids
    # The words are the same ones, so the same are asked for under both vocabularies.
    assert beside.n_words == old.n_words == 4
    assert sorted(set(beside.words)) == sorted(set(old.words))
    assert sum(beside.widths) == sum(old.widths)


@pytest.mark.parametrize("literal", ["[SEP]", "wlan [SEP] wlan", "[CLS]wlan[MASK]", "[ sep ]"])
def test_a_literal_special_token_stays_text(
    literal: str, tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    tokenizer = extended(tiny_tokenizer_path, tmp_path / "tokenizer.json", "wlan", "sep")
    control = tokenizer.special_ids - {tokenizer.unk_id}
    assert len(control) == 4
    assert control.isdisjoint(tokenizer.pieces([literal])[0].ids)
    assert control.isdisjoint(tokenizer.tokenize([literal])[0].ids)
    assert tokenizer.special_tokens == PieceTokenizer(tiny_tokenizer_path).special_tokens


def test_reloaded_by_transformers_the_ids_are_the_same(
    tiny_tokenizer_path: Path, tiny_backbone: Path, tmp_path: Path
) -> None:
    tokenizer = extended(tiny_tokenizer_path, tmp_path / "tokenizer.json", "wlan", "router")
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_backbone / name).read_bytes())
    sentence = "the Wlan router is late"
    (mine,) = tokenizer.pieces([sentence])
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(sentence, add_special_tokens=False)["input_ids"] == list(mine.ids)
    save_tokenizer(f"path:{tmp_path}", tmp_path / "again.json")
    assert PieceTokenizer(tmp_path / "again.json").pieces([sentence]) == [mine]


def test_a_new_row_is_the_mean_of_its_pieces() -> None:
    torch.manual_seed(1)
    model = BertForMaskedLM(tiny_config())
    with torch.no_grad():
        model.cls.predictions.bias.copy_(torch.arange(20.0))
    before = model.get_input_embeddings().weight.detach().clone()
    extend_model(model, {20: (4, 6), 21: (5, 5, 8)}, seed=1)
    table = model.get_input_embeddings().weight
    assert table.shape == (22, 16)
    assert torch.equal(table[:20], before)
    assert torch.allclose(table[20], (before[4] + before[6]) / 2)
    assert torch.allclose(table[21], (2 * before[5] + before[8]) / 3)
    output = model.get_output_embeddings()
    assert output.weight is table
    assert output.bias.tolist() == pytest.approx([*range(20), 5.0, 6.0])
    assert model.config.vocab_size == 22


def test_rows_without_pieces_are_drawn_apart_around_the_mean_of_all() -> None:
    torch.manual_seed(1)
    models = [BertForMaskedLM(tiny_config(vocab_size=500)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    with torch.no_grad():
        for model in models:
            model.get_input_embeddings().weight.add_(3.0)
            model.cls.predictions.bias.copy_(torch.arange(500.0))
    before = models[0].get_input_embeddings().weight.detach().clone()
    for model in models:
        extend_model(model, {500 + n: () for n in range(1000)}, seed=7)
    table = models[0].get_input_embeddings().weight
    assert torch.equal(table, models[1].get_input_embeddings().weight)
    assert torch.equal(table[:500], before)
    new = table[500:]
    assert new.mean().item() == pytest.approx(before.mean().item(), abs=0.002)
    assert new.std(dim=0).mean().item() == pytest.approx(before.std(dim=0).mean().item(), rel=0.02)
    assert len(torch.unique(new, dim=0)) == 1000
    assert models[0].get_output_embeddings().bias[500:].tolist() == pytest.approx([249.5] * 1000)


def test_an_output_layer_of_its_own_gets_the_mean_too_and_a_padded_one_keeps_its_size() -> None:
    torch.manual_seed(1)
    model = BertForMaskedLM(tiny_config(tie_word_embeddings=False))
    output = model.get_output_embeddings().weight.detach().clone()
    extend_model(model, {18: (4, 6)}, seed=1)  # two rows of the vocabulary had no piece yet
    assert model.get_input_embeddings().weight.shape == (20, 16)
    assert torch.allclose(model.get_output_embeddings().weight[18], (output[4] + output[6]) / 2)


def test_another_kind_of_tokenizer_is_refused(tmp_path: Path, tiny_tokenizer_path: Path) -> None:
    raw = json.loads(tiny_tokenizer_path.read_text())
    vocabulary = raw["model"]["vocab"]
    raw["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="for backbones of BERT's kind"):
        choose_words([], PieceTokenizer(tmp_path / "tokenizer.json"), limit=1, min_count=1)


def tiny_config(**changes: object) -> BertConfig:
    settings: dict[str, object] = {
        "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32,
    }  # fmt: skip
    return BertConfig(**settings | changes)
