from __future__ import annotations

import pytest

from pipeline.engines.confusables import unmask_homoglyphs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p\u0430ypal \u0440\u0430ypal", "paypal paypal"),
        ("\u0391mazon Micros\u03bfft", "Amazon Microsoft"),
        ("\u0406nvoice", "Invoice"),
        ("M\u043eсква", "\u041c\u043eсква"),
        ("аррlе", "apple"),  # all but one letter Cyrillic
        ("привет Σωκράτης hello", None),
        ("kΩ μm ΔT Щит-word Жabc", None),
    ],
)
def test_unmask_homoglyphs(text, expected):
    assert unmask_homoglyphs(text) == (text if expected is None else expected)
