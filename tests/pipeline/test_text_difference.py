from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.text_difference import Span, differences, visible

WORDS = st.lists(st.sampled_from(["a", " ", "bc", "\n", "<b>", "é"]), max_size=20).map("".join)


def test_words_are_compared_as_wholes():
    assert differences("my mail a@b now", "my mail [X] now") == (
        Span("same", "my mail "),
        Span("removed", "a@b"),
        Span("added", "[X]"),
        Span("same", " now"),
    )
    assert differences("", "") == ()


@given(WORDS, WORDS)
def test_both_texts_can_be_had_back(before, after):
    spans = differences(before, after)
    assert "".join(span.text for span in spans if span.kind != "added") == before
    assert "".join(span.text for span in spans if span.kind != "removed") == after


def test_what_differs_all_over_is_one_stretch():
    spans = differences("a " * 5000, "b " * 5000)
    assert [span.kind for span in spans] == ["removed", "added", "same"]


def test_what_has_no_shape_is_an_escape():
    assert visible("a\u200b\x1b[1m\u202e\xa0\ud800\t é\n你👍") == (
        "a\\u200b\\x1b[1m\\u202e\\xa0\\ud800\\t é\n你👍"
    )
