from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.clean import Cleaner
from pipeline.special_tokens import SpecialTokens
from schemas.task import CleanConfig

TOKENS = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "<s>", "</s>", "<mask>", "<|endoftext|>")
CLEANER = Cleaner(CleanConfig(), special_tokens=TOKENS)


@pytest.mark.parametrize(
    ("text", "expected", "changed"),
    [
        ("plain text.", "plain text.", ()),
        ("Café naïve 你好 “q” ﬁ", "Café naïve 你好 “q” ﬁ", ()),
        ("cafÃ©", "café", ("unicode",)),
        ("e\u0301", "é", ("unicode",)),
        ("a\ud800b", "a\ufffdb", ("unicode",)),
        ("a\x00b\u200bc\u202ed\u00ad", "abcd", ("controls",)),
        ("👨‍👩‍👧 ❤️ 1️⃣", "👨‍👩‍👧 ❤️ 1️⃣", ()),
        ("می‌خواهم क्‍ष", "می‌خواهم क्‍ष", ()),
        ("a\u200db\ufe0f", "ab", ("controls",)),
        ("<p>a<br>b &amp; c</p>", "a\nb & c", ("html", "whitespace")),
        ("a < b and c > d", "a < b and c > d", ()),
        ("&lt;b&gt;x&lt;/b&gt;", "x", ("html",)),
        ("hi [SEP]", "hi sep", ("special_tokens", "whitespace")),
        ("[S\u200bEP]", "sep", ("controls", "special_tokens", "whitespace")),
        ("&#91;SEP&#93;", "sep", ("html", "special_tokens", "whitespace")),
        ("[<b></b>SEP]", "sep", ("html", "special_tokens", "whitespace")),
        ("hi<s>there</s>", "hi there", ("html", "whitespace")),
        (" a \t\u00a0b\r\n\r\n c\u2028d ", "a b\nc\nd", ("whitespace",)),
    ],
)
def test_each_step_and_pairs_that_meet(text, expected, changed):
    cleaned = CLEANER.clean(text)
    assert (cleaned.text, cleaned.changed) == (expected, changed)


def test_only_configured_steps_run():
    cleaner = Cleaner(CleanConfig(steps=("whitespace",)), special_tokens=TOKENS)
    assert cleaner.clean("<b>a</b>  [SEP]").text == "<b>a</b> [SEP]"


def test_version_names_steps_and_tokens_but_not_their_order():
    def version(steps, tokens):
        return Cleaner(CleanConfig(steps=steps), special_tokens=tokens).version

    one = version(("html", "controls"), ("[A]", "[B]"))
    assert one == version(("controls", "html"), ("[B]", "[A]"))
    assert len({one, version(("html",), ("[A]", "[B]")), version(("html", "controls"), ())}) == 3
    assert one.startswith("1-")
    assert len(one) == 14


NASTY = st.lists(
    st.sampled_from(
        ["&", "amp;", "lt;", "gt;", "#91;", "#x5d;", "<", ">", "[", "]", "SEP", "s", "b", "/", "p",
         " ", "\n", "\r", "\t", "\u00a0", "\u200b", "\u200d", "\ufe0f", "\u202e", "👩", "❤", "Ã",
         "©", "â", "€", "™", "\x80", "\x99", "é", "e", "\u0301", "\ud800", "<!--", "-->",
         "<script>",          "</script>", "|",
         "endoftext", "［", "1", "\u20e3", "ی", "क", "्", "\x1b[", '"', "="]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(NASTY | st.text(max_size=40))
@example("&" + "am&#112;;" * 30 + "lt;b&gt;")
@example("".join(f"&#3{'&#56;' * n};" for n in range(12)))
def test_cleaning_twice_is_cleaning_once_and_no_token_remains(text):
    once = CLEANER.clean(text).text
    assert CLEANER.clean(once) == type(CLEANER.clean(once))(once, ())
    assert not SpecialTokens(TOKENS).found_in(once)
    once.encode()


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 100_000 + "x", "&" + "amp;" * 100_000, "<" * 50_000 + "s>" * 50_000,
        "<script>" * 20_000 + "</", '<a b="' * 30_000, "[ " * 100_000, "<!--" * 50_000,
        "Ã" * 50_000 + "Â©" * 25_000, "\u200d" * 100_000,
    ],
)  # fmt: skip
def test_a_hostile_text_costs_little(text):
    start = time.perf_counter()
    CLEANER.clean(text)
    assert time.perf_counter() - start < 5
