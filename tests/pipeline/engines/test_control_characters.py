from __future__ import annotations

import pytest

from pipeline.engines.control_characters import drop_controls


def flag_of(region):
    return "\U0001f3f4" + "".join(chr(0xE0000 + ord(char)) for char in region) + "\U000e007f"


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
        ("👨🏽\u200d🦰 🏳\ufe0f\u200d🌈 ❤\ufe0f\u200d🔥", None),
        ("👁\ufe0f\u200d🗨\ufe0f 🧑🏽\u200d🤝\u200d🧑🏻", None),
        ("🇩🇪 🇫🇷 #\ufe0f\u20e3", None),
        *((flag_of(region), None) for region in ("gbeng", "gbsct", "gbwls", "usca")),
        (flag_of("gbeng")[:-1], "\U0001f3f4"),  # no end tag
        (flag_of("hidden words"), "\U0001f3f4"),
        ("a" + flag_of("gbeng")[1:], "a"),
        ("می\u200cخواهم खु\u200cद क\u094d\u200cष ශ\u0dca\u200dරී র\u200d\u09cd\u09af", None),
        ("pay\u200cpal\u200d \u0645\u200c ", "paypal \u0645 "),
        ("\u202eabc\u2066\u2069\u200f שלום", "abc שלום"),
    ],
)
def test_drop_controls(text, expected):
    assert drop_controls(text) == (text if expected is None else expected)
