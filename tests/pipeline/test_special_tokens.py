from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.special_tokens import SpecialTokens

TOKENS = ("[CLS]", "[SEP]", "<s>", "</s>", "<mask>", "<|endoftext|>", "<unk>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [SEP] b", "a sep b"),
        ("a[sep]b", "a sep b"),
        ("[ Sep ]", "sep"),
        ("［ＳＥＰ］ ［sep]", "sep sep"),
        ("x <s>y</ S > z", "x y z"),
        ("< | EndOfText | >", "endoftext"),
        ("▁<s>▁ [▁SEP▁] <▁/▁s▁>", "▁ ▁ sep"),
        ("[[SEP]]", "sep"),
        ("[[SEP]SEP]", "[ sep SEP]"),
        ("<<s>s>", ""),
        ("a < b, c > d [1] SEP <code>", "a < b, c > d [1] SEP <code>"),
    ],
)
def test_tokens_become_words(text, expected):
    assert " ".join(SpecialTokens(TOKENS).neutralise(text).split()) == expected


def test_a_bare_word_is_a_token_only_as_written():
    tokens = SpecialTokens(("EOS", "pad"))
    assert tokens.neutralise("EOS eos Pad") == " eos  eos Pad"
    assert tokens.neutralise("my pad") == "my  "


def test_without_tokens_nothing_changes():
    assert SpecialTokens(()).neutralise("[SEP] <s>") == "[SEP] <s>"


def test_deep_nesting_costs_no_more_than_a_few_passes():
    start = time.perf_counter()
    text = SpecialTokens(TOKENS).neutralise("<" * 50_000 + "s>" * 50_000)
    assert time.perf_counter() - start < 5
    assert not SpecialTokens(TOKENS).found_in(text)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["[", "]", "<", ">", "/", "|", " ", "s", "S", "SEP", "sep", "［", "EOS",
                         "mask", "endoftext", "[SEP]", "<s>", "\n"])
    ).map("".join)
)  # fmt: skip
def test_nothing_remains_and_twice_is_once(text):
    tokens = SpecialTokens((*TOKENS, "EOS"))
    once = tokens.neutralise(text)
    assert not tokens.found_in(once)
    assert tokens.neutralise(once) == once
