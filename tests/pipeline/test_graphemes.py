"""Grapheme borders near a place are those of the whole text, found without reading all of it."""

from __future__ import annotations

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pipeline.graphemes import Graphemes, cut_at_grapheme

FAMILY, FLAG, SCOTLAND = "👨\u200d👩\u200d👧", "🇩🇪", "🏴\U000e0067\U000e0062\U000e007f"
# Everything that the rules of segmentation tell apart, whole and in pieces.
PIECES = st.sampled_from(
    [
        "a", " ", "1", "\r", "\n", "\r\n", "\t", "\0", "\u0301", "\u0301" * 70, "\u200d", "\u200c",
        FAMILY, FLAG, FLAG * 40, "🇫", SCOTLAND, "\U000e007f", "👍🏽", "🏽", "❤", "\ufe0f", "\u20e3",
        "क्षि", "क", "्", "ि", "മ്",
        "\u0600", "\u0d4e", "ᄀ", "ᅡ", "ᆨ", "가", "각", "ก", "ำ", "你", "é", "😀",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def borders(text: str) -> list[int]:
    r"""The reference: `\X` over the whole text."""
    return [0, *(grapheme.end() for grapheme in regex.finditer(r"\X", text))]


@given(TEXTS)
def test_failure_40_every_place_is_told_as_by_the_whole_text(text: str) -> None:
    graphemes, known = Graphemes(text), borders(text)
    for at in range(len(text) + 1):
        assert graphemes.floor(at) == max(border for border in known if border <= at)
        assert graphemes.is_border(at) == (at in known)


@given(TEXTS, st.data())
def test_a_place_is_told_the_same_in_any_order(text: str, data: st.DataObject) -> None:
    graphemes = Graphemes(text)
    for at in data.draw(st.lists(st.integers(0, len(text)), max_size=8)):
        assert graphemes.floor(at) == Graphemes(text).floor(at)


@given(TEXTS, st.integers(1, 200))
def test_failure_40_a_cut_text_ends_with_a_whole_grapheme(text: str, limit: int) -> None:
    cut = cut_at_grapheme(text, limit)
    assert text.startswith(cut)
    if len(text) <= limit:
        assert cut == text
        return
    last = max(border for border in borders(text) if border <= limit)
    assert len(cut) == (last or limit)


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("ab" + FAMILY, 4, "ab"),
        ("ab" + FAMILY, 7, "ab" + FAMILY),
        ("a" + FLAG * 3, 4, "a" + FLAG),
        ("a" + FLAG * 3, 5, "a" + FLAG * 2),
        ("ab\r\nc", 3, "ab"),
        ("ab" + "e" + "\u0301" * 200 + "c", 150, "ab"),  # begins long before the bound
        ("e" + "\u0301" * 200, 150, "e" + "\u0301" * 149),  # fills all of it
    ],
)
def test_a_cut_by_hand(text: str, limit: int, kept: str) -> None:
    assert cut_at_grapheme(text, limit) == kept


@pytest.mark.parametrize(
    "unit",
    [FLAG, "\u0301", "👨\u200d", "क्", "\u0600", "ᄀ", "\r\n", "\u200d\u0301", "a", "🇩🇪\u0301"],
)
def test_failure_39_hostile_texts_are_cut_in_linear_time(unit: str) -> None:
    r"""Flags alone cost `\X` the square of their number: 25 s for 50,000 of them."""
    text = "x" + unit * (100_000 // len(unit))
    started = time.process_time()
    graphemes = Graphemes(text)
    for at in range(0, len(text), 50):
        assert 0 <= graphemes.floor(at) <= at
    assert len(cut_at_grapheme(text, 99_998)) <= 99_998
    assert time.process_time() - started < 1.0
