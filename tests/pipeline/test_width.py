from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.width import normalise_width


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＡＺａｚ０９＠＋．＆％［］", "AZaz09@+.&%[]"),
        ("价格：５０％，好！（真的？）；～", "价格：50%，好！（真的？）；～"),
        ("ｶﾀｶﾅ ﾊﾟﾋﾞ ｡｢｣､", "カタカナ パビ 。「」、"),
        ("￥５０ ￡５", "¥50 £5"),
        ("カタカナ ひらがな ABC、。", None),
    ],
)
def test_normalise_width(text, expected):
    assert normalise_width(text) == (text if expected is None else expected)


@given(st.text(st.characters(min_codepoint=0xFF00, max_codepoint=0xFFEF)))
def test_the_outcome_is_a_compatible_form_and_final(text):
    once = normalise_width(text)
    assert normalise_width(once) == once
    assert unicodedata.normalize("NFKC", once) == unicodedata.normalize("NFKC", text)
