from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.markdown_text import markdown_to_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n### Two ##\n# C#", "One\nTwo\nC#"),
        ("Title\n=====\n\ntext\n---\n* * *\nend", "Title\n\ntext\nend"),
        ("* a\n+ b\n  • c\n- [x] done\n1. one", "- a\n- b\n  - c\n- done\n1. one"),
        ("**bold** *it* ***both*** __b__ _i_ ~~gone~~", "bold it both b i gone"),
        ("**a *b* c**", "a b c"),
        ("`x = 1` ``a b``", "x = 1 a b"),
        ("```python\nprint(1)\n```\n~~~\ny\n~~~", "print(1)\ny\n"),
        ("[a b](http://x.example/y_(z) \"t\") [](/q.html)", "a b /q.html"),
        ("![cat](c.png) [![alt](a.png)](https://x.example)", "cat alt"),
        ("<https://x.example/a>", "https://x.example/a"),
        ("> quoted\n>> twice\n> > thrice", "quoted\ntwice\nthrice"),
        ("| a | b |\n|:--|--:|\n| 1 | 2 |\n\nx | y", "a, b\n1, 2\n\nx | y"),
        ("a | b\n--- | ---\n1 | 2", "a, b\n1, 2"),
        ("snake_case _x __init__x 2 * 3 * 4 2*3*4 #1 # f**k ***** >:( a|b", None),
        ("[EMAIL](x.y) [PHONE][ID] f[i](x) [1] * * * * = good [a] (http://x.example)", None),
        ("```never closed *but* text", "```never closed but text"),
    ],
)  # fmt: skip
def test_markdown_to_text(text, expected):
    assert markdown_to_text(text) == (text if expected is None else expected)


@given(st.text(st.sampled_from("ab1 \n*_`~#|>[]()!-=+.:/"), max_size=40))
def test_words_are_never_lost(text):
    words = [char for char in text if char.isalnum()]
    kept = [char for char in markdown_to_text(text) if char.isalnum()]
    if "](" not in text and "`" not in text and "~" not in text:  # link targets, a fence's language
        assert kept == words
    assert len(kept) <= len(words)
