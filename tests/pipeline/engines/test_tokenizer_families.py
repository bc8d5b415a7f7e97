"""Control ids stand only where the encoder puts them, whatever the family and whatever the text.

FAILURES row 35: a user types `[SEP]` or `<s>`, and the model sees a control token.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from pipeline.clean import Cleaner
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.special_tokens import SpecialTokens
from pipeline.window import make_windows
from schemas.task import CleanConfig, WindowConfig

SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789<>/[]|_.,!▁ "


def frame(tokenizer, start, end, *, pair):
    ids = [(name, tokenizer.token_to_id(name)) for name in (start, end)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", pair=pair, special_tokens=ids
    )
    return tokenizer


def bert():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *SIGNS.strip(), *(f"##{sign}" for sign in SIGNS.strip()), "sep", "mask"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    return frame(tokenizer, "[CLS]", "[SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1")


def byte_level(special, *, unk):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=unk))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name == "<mask>", normalized=False) for name in special]
    )
    return tokenizer


def roberta():
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], unk="<unk>")
    return frame(tokenizer, "<s>", "</s>", pair="<s> $A </s> </s> $B </s>")


def modernbert():
    special = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "<|endoftext|>", "<|padding|>",
               "|||EMAIL_ADDRESS|||", "|||IP_ADDRESS|||"]  # fmt: skip
    tokenizer = byte_level(special, unk="[UNK]")
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(" " * width, normalized=False) for width in range(2, 8)])
    return frame(tokenizer, "[CLS]", "[SEP]", pair="[CLS] $A [SEP] $B [SEP]")


def xlm_roberta():
    """Its control tokens are pieces with score 0, which the best path always takes."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = [(name, 0.0) for name in special] + [(sign, -8.0) for sign in SIGNS.strip()]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    return frame(tokenizer, "<s>", "</s>", pair="<s> $A </s> </s> $B </s>")


FAMILIES = {make.__name__: make for make in (bert, roberta, modernbert, xlm_roberta)}
LITERALS = ["[SEP]", "[CLS]", "[PAD]", "[MASK]", "<s>", "</s>", "<mask>", "<pad>", "<|endoftext|>",
            "|||EMAIL_ADDRESS|||", "＜ｓ＞", "［SEP］", "▁<s>", "< s >"]  # fmt: skip
TEXTS = st.lists(
    st.sampled_from([*LITERALS, *"<>[]|/s▁ ", "SEP", "a", "  ", "😀", "é"]) | st.text(max_size=3),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    FAMILIES[request.param]().save(str(path))
    return BackboneTokenizer(path)


def control_ids(tokenizer):
    known = tokenizer._tokenizer
    names = set(tokenizer.special_tokens) - {"[UNK]", "<unk>"}
    return {known.token_to_id(name) for name in names}


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_failure_35_no_text_makes_a_control_id(family, text):
    (tokens,) = family.tokenize([text])
    assert not control_ids(family) & set(tokens.ids)
    assert all(0 <= start <= stop <= len(text) for start, stop in tokens.offsets)


@settings(max_examples=100, deadline=None)
@given(head=TEXTS, body=TEXTS)
def test_failure_35_in_a_window_they_stand_where_the_template_has_them(family, head, body):
    cleaner = Cleaner(CleanConfig(), special_tokens=family.special_tokens)
    texts = (cleaner.clean(head).text, cleaner.clean(body).text)
    config = WindowConfig(max_tokens=16, stride_tokens=4)
    template = family.pair
    parts = family.tokenize(list(texts))
    for window in make_windows(parts, texts, template=template, config=config).windows:
        found = [token_id for token_id in window.input_ids if token_id in control_ids(family)]
        assert found == [token_id for gap in template.gaps for token_id in gap]


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_failure_35_the_cleaner_alone_leaves_no_literal_token(family, text):
    cleaned = Cleaner(CleanConfig(), special_tokens=family.special_tokens).clean(text).text
    assert not SpecialTokens(family.special_tokens).found_in(cleaned)


def test_a_control_piece_of_sentencepiece_is_spelt_in_its_characters(tmp_path):
    tokenizer = xlm_roberta()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    assert "<s>" in tokenizer.encode("a <s>", add_special_tokens=False).tokens  # the trap
    (tokens,) = BackboneTokenizer(tmp_path / "tokenizer.json").tokenize(["a <s>"])
    pieces = map(tokenizer.id_to_token, tokens.ids)
    spelt = list(zip(pieces, tokens.offsets, strict=True))
    assert [(piece, span) for piece, span in spelt if piece != "▁"] == [
        ("a", (0, 1)), ("<", (2, 3)), ("s", (3, 4)), (">", (4, 5)),
    ]  # fmt: skip


def test_unknown_token_is_named_by_the_vocabulary(family):
    assert family.unk_id == family._tokenizer.token_to_id(
        "<unk>" if "<unk>" in family.special_tokens else "[UNK]"
    )


def test_failure_40_an_emoji_that_the_vocabulary_lacks_is_an_unknown_token(tmp_path):
    bert().save(str(tmp_path / "tokenizer.json"))
    tokenizer = BackboneTokenizer(tmp_path / "tokenizer.json")
    (tokens,) = tokenizer.tokenize(["a 😀 b"])
    assert [token_id == tokenizer.unk_id for token_id in tokens.ids] == [False, True, False]


def test_a_vocabulary_that_can_spell_everything_has_no_unknown_token(tmp_path):
    spelling = byte_level(["<s>", "</s>"], unk=None)
    frame(spelling, "<s>", "</s>", pair="<s> $A </s> $B </s>").save(
        str(tmp_path / "tokenizer.json")
    )
    assert BackboneTokenizer(tmp_path / "tokenizer.json").unk_id is None
