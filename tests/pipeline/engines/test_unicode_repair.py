"""The quick look that spares sound text from ftfy never changes the outcome."""

from __future__ import annotations

import pytest
from ftfy import fix_text
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engines import unicode_repair
from pipeline.engines.unicode_repair import repair_unicode

SUSPECTS = st.sampled_from(
    [*"ÂÃâ€™ŒœĂŔØÙÐГРСВЂв×²³à¹ß£¥§°√±ВВАй╨║βΒΓΞΟα­·«»“”„…—–‹›¡¿ªºµ¶‚šžŸ¢¤", " ", "\xa0", "\n", "a",
     "z", "A", "-", ".", "\x85", "\x99", "\x1b[0m", "\u0301", "e", "你", "ก", "ा", "\ud800", "😀",
     "Â ", "тАЩ", "Ã©", "â€œ", "ï¿½", "\ufb01", "̈"]
)  # fmt: skip


def always_ftfy(text):
    return text if text.isascii() else fix_text(text, unicode_repair._CONFIG)


@settings(max_examples=600, deadline=None)
@given(st.lists(SUSPECTS, max_size=10).map("".join) | st.text(max_size=30))
def test_the_outcome_is_ftfys(text):
    assert repair_unicode(text) == always_ftfy(text)


@pytest.mark.parametrize(
    "encoding", ["cp1252", "cp1251", "cp1250", "mac_roman", "latin-1", "cp437"]
)
@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs",)), max_size=20))
def test_the_outcome_is_ftfys_for_real_mojibake(encoding, text):
    broken = text.encode().decode(encoding, errors="replace")
    assert repair_unicode(broken) == always_ftfy(broken)


@pytest.mark.parametrize(
    "text", ["Grüße aus Köln – „schön“", "我的订单在哪里？", "สวัสดีครับ", "Ça va très bien", "नमस्ते"]
)
def test_sound_text_never_reaches_ftfy(text, monkeypatch):
    monkeypatch.setattr(unicode_repair, "fix_text", None)
    assert repair_unicode(text) == text
