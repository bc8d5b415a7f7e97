from __future__ import annotations

import pytest

from pipeline.engines.language_id import detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello,\nmy order has not arrived yet", "en"),
        ("Guten Tag, ich habe ein Problem mit meiner Rechnung", "de"),
        ("我的订单在哪里", "zh"),
        ("", "und"),
        ("12345 !!\n😀", "und"),
    ],
)
def test_detect_language(text, language):
    assert detect_language(text) == language


def test_a_long_text_is_judged_by_its_beginning():
    german = "Das Paket ist leider noch nicht angekommen. " * 20
    assert detect_language(german + "the parcel " * 100_000) == "de"
