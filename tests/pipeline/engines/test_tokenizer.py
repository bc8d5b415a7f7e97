"""The backbone's own tokenizer: control ids are its own, and no text can make one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer

from pipeline.engines.tokenizer import BackboneTokenizer
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_path: Path) -> BackboneTokenizer:
    return BackboneTokenizer(tiny_tokenizer_path)


def ids(path: Path, *names: str) -> list[int | None]:
    known = Tokenizer.from_file(str(path))
    return [known.token_to_id(name) for name in names]


def test_templates_come_from_the_tokenizer(
    tokenizer: BackboneTokenizer, tiny_tokenizer_path: Path
) -> None:
    cls, sep = ids(tiny_tokenizer_path, "[CLS]", "[SEP]")
    assert tokenizer.single.gaps == ((cls,), (sep,))
    assert (tokenizer.single.types, tokenizer.single.gap_types) == ((0,), ((0,), (0,)))
    assert tokenizer.pair.gaps == ((cls,), (sep,), (sep,))
    assert (tokenizer.pair.types, tokenizer.pair.gap_types) == ((0, 1), ((0,), (0,), (1,)))
    assert (tokenizer.single.n_control, tokenizer.pair.n_control) == (2, 3)


def test_special_tokens_and_padding_are_the_vocabularys(tokenizer: BackboneTokenizer) -> None:
    assert tokenizer.special_tokens == ("[CLS]", "[MASK]", "[PAD]", "[SEP]", "[UNK]")
    assert tokenizer.pad_id == 0


def test_offsets_point_into_the_text(tokenizer: BackboneTokenizer) -> None:
    text = "Refund, PLEASE x9"
    (tokens,) = tokenizer.tokenize([text])
    pieces = [text[start:stop] for start, stop in tokens.offsets]
    assert pieces == ["Refund", ",", "PLEASE", "x", "9"]


@pytest.mark.parametrize("literal", ["[SEP]", "[CLS] [MASK]", "a[PAD]b"])
def test_a_literal_special_token_is_ordinary_text(
    tokenizer: BackboneTokenizer, tiny_tokenizer_path: Path, literal: str
) -> None:
    """FAILURES row 35: a user who types a control token does not move the model's own."""
    control = set(ids(tiny_tokenizer_path, "[SEP]", "[CLS]", "[MASK]", "[PAD]"))
    (tokens,) = tokenizer.tokenize([literal])
    assert len(tokens.ids) > 2
    assert not control & set(tokens.ids)


def test_texts_are_neither_padded_nor_cut(
    tokenizer: BackboneTokenizer, tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    """FAILURES row 38: what the file says of truncation and padding does not count."""
    file = Tokenizer.from_file(str(tiny_tokenizer_path))
    file.enable_truncation(4)
    file.enable_padding(length=16)
    file.save(str(tmp_path / "tokenizer.json"))
    texts = ["the app " * 30, "app"]
    loaded = BackboneTokenizer(tmp_path / "tokenizer.json")
    assert [len(tokens.ids) for tokens in loaded.tokenize(texts)] == [60, 1]
    assert loaded.tokenize(texts) == tokenizer.tokenize(texts)


def test_equal_texts_give_equal_tokens_whoever_stands_beside(tokenizer: BackboneTokenizer) -> None:
    alone = tokenizer.tokenize(["late parcel"])[0]
    assert tokenizer.tokenize(["x", "late parcel", "y z"])[1] == alone
    assert tokenizer.tokenize([""])[0].ids == ()


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"version": "1.0"}'])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"tokenizer\.json is not a tokenizer\.json: "):
        BackboneTokenizer(path)


def test_one_that_puts_no_control_token_is_refused(
    tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    """An empty text would be a window of no token, which no encoder can read."""
    raw = json.loads(tiny_tokenizer_path.read_text())
    raw["post_processor"] = None
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(ArtifactError, match="puts no control token around a text"):
        BackboneTokenizer(path)
