"""Repair of mojibake and broken surrogates by ftfy, and Unicode normal form C."""

from __future__ import annotations

import re
from unicodedata import is_normalized

from ftfy import TextFixerConfig, fix_text
from ftfy.badness import is_bad

# Only repairs: curly quotes, ligatures and full-width forms are the writer's own; HTML and line
# ends are other steps' work.
_CONFIG = TextFixerConfig(
    unescape_html=False,
    uncurl_quotes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    fix_line_breaks=False,
    remove_control_chars=False,
    explain=False,
)


# Surrogates, C1 controls, terminal escapes, and two letters that often begin mojibake.
_SUSPECT = re.compile("[\x1b\x80-\x9f\ud800-\udfffÂÃ]")
# All other mojibake that ftfy knows has two neighbours of these blocks, or one of four signs. The
# search costs a fraction of ftfy's own, and says no to most German, Chinese and Thai.
_NEIGHBOURS = re.compile(
    "[\xa0-\u058f\u2000-\u2bff\ufb00-\ufb06\ufffd]{2}|[Œœ]|[ВГРС]-[ВГРС]|[ΒΓΞΟ]-[ΒΓΞΟ]"
)


def repair_unicode(text: str) -> str:
    """The text in NFC with mojibake undone; a lone surrogate becomes U+FFFD.

    Sound text costs a search or two: ftfy would leave it as it is.
    """
    return text if text.isascii() or _is_sound(text) else fix_text(text, _CONFIG)


def _is_sound(text: str) -> bool:
    if _SUSPECT.search(text) or not is_normalized("NFC", text):
        return False
    return not (_NEIGHBOURS.search(text) and is_bad(text))
