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
        ("''''", "und"),
        ("宽带流畅。", "zh"),  # short Chinese texts are Korean, English or Cantonese to the model
        ("缺点: DVD 光驱不好用", "zh"),
        ("とても良いホテルです", "ja"),
        ("สวัสดีครับ ขอสอบถามราคา", "th"),
    ],
)
def test_detect_language(text, language):
    assert detect_language(text) == language


def test_a_long_text_is_judged_by_its_beginning():
    german = "Das Paket ist leider noch nicht angekommen. " * 20
    assert detect_language(german + "the parcel " * 100_000) == "de"


def test_marks_and_digits_do_not_change_the_language():
    plain = detect_language("light weight, easy to use")
    assert plain == "en"
    assert detect_language("1) light-weight!!! ... 2) easy / to / use ### 100%") == plain
