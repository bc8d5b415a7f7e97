from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.repeats import RepeatCut


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("soooo goood!!!! -----", "sooo goood!!! ---"),
        ("1000000 11111 EUR    x", None),
        ("é" * 9 + "e\u0301" * 9, "é" * 3 + "e\u0301" * 3),
        ("👍🏽" * 5 + "👩‍👧" * 4 + "🇩🇪" * 4, "👍🏽" * 3 + "👩‍👧" * 3 + "🇩🇪" * 3),
        ("👍🏽👍🏾👍🏽👍🏾👍🏽👍🏾👍🏽👍🏾", None),
        ("ดีมากกกกก 哈哈哈哈哈", "ดีมากกก 哈哈哈"),
    ],
)
def test_runs_are_cut_to_three(text, expected):
    assert RepeatCut(3)(text) == (text if expected is None else expected)


@given(
    st.lists(st.sampled_from(["a", "b", "é", "\u0301", "👍", "🏽", "\u200d", "1", " "])).map(
        "".join
    )
)
def test_a_second_cut_changes_nothing(text):
    cut = RepeatCut(2)
    once = cut(text)
    assert cut(once) == once
    assert len(once) <= len(text)
