from __future__ import annotations

from collections import Counter

import pytest

from pipeline.model.distil.augment import changed_texts
from schemas.distil import AugmentConfig

TEXT = "one two three four five six seven eight nine ten"


def change(text: str, *, key: str = "k", **settings: float) -> str:
    config = AugmentConfig.model_validate({"word_drop": 0.0, "span_swap": 0.0, **settings})
    changed = changed_texts([text], config, key=key)
    return text if changed is None else changed[0]


def test_equal_keys_give_equal_texts_and_others_do_not() -> None:
    settings = {"word_drop": 0.3, "span_swap": 0.3}
    assert change(TEXT, key="a", **settings) == change(TEXT, key="a", **settings)
    assert len({change(TEXT, key=str(n), **settings) for n in range(20)}) > 15


def test_words_are_left_out_at_about_the_asked_rate_and_never_all() -> None:
    left = [len(change(TEXT, key=str(n), word_drop=0.3).split()) for n in range(300)]
    assert sum(left) / 300 == pytest.approx(7.0, abs=0.3)
    assert all(set(change(TEXT, key=str(n), word_drop=0.99).split()) for n in range(50))


def test_swapped_spans_lose_no_word_and_keep_spaces() -> None:
    texts = [change(TEXT, key=str(n), span_swap=0.5) for n in range(50)]
    assert all(Counter(text.split()) == Counter(TEXT.split()) for text in texts)
    assert all(text == " ".join(text.split()) for text in texts)
    assert sum(text != TEXT for text in texts) > 45


def test_nothing_to_change_is_no_copy() -> None:
    config = AugmentConfig(word_drop=0.0, span_swap=0.0)
    assert changed_texts(["a b c"], config, key="k") is None
    assert changed_texts(["", "word"], AugmentConfig(word_drop=0.9), key="k") is None


def test_scripts_without_spaces_are_changed_by_character() -> None:
    left = {len(change("包裹今天又晚到了请帮忙", key=str(n), word_drop=0.3)) for n in range(20)}
    assert len(left) > 3
