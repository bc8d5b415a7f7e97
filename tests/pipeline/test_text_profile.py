from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from pipeline.flow import Prepared
from pipeline.rows import Record, Rejected
from pipeline.text_profile import TextProfile, count_unknown
from pipeline.window import Window, Windows
from schemas.profiles import LanguageStatistics, TextStatistics
from schemas.reasons import Reason, Stage

RECORD = Record("1", "a.csv", 0, ("x",), {}, b"")


def prepared(text, *, lang="en", flags=(), truncated=False):
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Prepared(RECORD, (text,), digest, lang, flags, truncated)


def windows(*lengths, unknown=0, truncated=False):
    made = []
    for length in lengths:
        ids = (100,) * min(unknown, length) + (7,) * (length - min(unknown, length))
        made.append(Window(ids, (0,) * length, 0, 1))
    return Windows(tuple(made), truncated)


def rejected(reason):
    return Rejected(None, "a.csv", 1, Stage.READ, reason, "", b"")


def test_a_profile_counts_lengths_languages_steps_repeats_and_rejects():
    profile = TextProfile()
    profile.add(prepared("abc", flags=("html", "language", "whitespace")), windows(8, 4), unknown=3)
    profile.add(prepared("abc", flags=("html",)), windows(8, truncated=True))
    profile.add(prepared("abcdef", lang="de", truncated=True))
    profile.reject(rejected(Reason.INVALID_JSON))
    profile.reject(rejected(Reason.INVALID_JSON))
    found = profile.document()
    assert (found.texts, found.distinct, found.truncated, found.tokenized) == (3, 2, 2, 2)
    assert (found.chars.median, found.chars.largest, found.chars.mean) == (3, 6, 4)
    assert (found.tokens.smallest, found.tokens.largest) == (8, 12)
    assert (found.windows.smallest, found.windows.largest) == (1, 2)
    assert found.languages == {
        "de": LanguageStatistics(texts=1),
        "en": LanguageStatistics(texts=2, tokens=20, unknown=3),
    }
    assert found.unknown_share == 3 / 20
    assert found.cleaned == {"html": 2, "whitespace": 1}
    assert found.rejected == {"invalid_json": 2}


def test_without_texts_and_tokens_there_is_no_share():
    assert TextProfile().document() == TextStatistics()
    assert TextStatistics().unknown_share is None


def test_failure_40_unknown_tokens_are_counted_in_all_windows():
    assert count_unknown(windows(4, 2, unknown=2), 100) == 4
    assert count_unknown(windows(4, 2, unknown=2), None) == 0


TEXTS = st.lists(st.tuples(st.text("ab", max_size=3), st.sampled_from(["en", "de"]), st.booleans()))


@given(TEXTS, TEXTS)
def test_two_merged_are_as_one(first, second):
    def filled(texts):
        profile = TextProfile()
        for text, lang, tokenized in texts:
            profile.add(prepared(text, lang=lang), windows(3) if tokenized else None)
            profile.reject(rejected(Reason.MALFORMED_ROW))
        return profile

    merged = filled(first)
    merged.merge(filled(second))
    assert merged.document() == filled(first + second).document()
