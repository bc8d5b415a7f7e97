from __future__ import annotations

import pytest

from pipeline.engines.control_characters import drop_controls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc\rd\x0b\x85", None),
        ("\x1b[31mred\x1b[0m\x07", "red"),
        ("\ufeffa\u2066b\u2069\u061c\u180e\u3164", "ab"),
        ("\U0001f3f4\U000e0067\U000e007f", "\U0001f3f4"),
        ("👍🏽\u200d👍 ✌️", None),
        ("1\ufe0f 1\ufe0f\u20e3", "1 1\ufe0f\u20e3"),
        ("\u200d👩\u200d \u200c", "👩 "),
        ("ന്\u200d", None),
    ],
)
def test_drop_controls(text, expected):
    assert drop_controls(text) == (text if expected is None else expected)
