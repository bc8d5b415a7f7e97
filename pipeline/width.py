"""Character width: full-width ASCII as ASCII, half-width katakana as katakana."""

from __future__ import annotations

import re
import unicodedata

_FULL_WIDTH_OFFSET = 0xFEE0
# Chinese and Japanese write these wide: in their texts they are no forms of something else.
_NATURAL = "，。！？：；（）～"
_WIDE_SIGNS = {ord(wide): narrow for wide, narrow in zip("￠￡￢￤￥￦", "¢£¬¦¥₩", strict=True)}
_NARROW_OF = _WIDE_SIGNS | {
    code: chr(code - _FULL_WIDTH_OFFSET)
    for code in range(0xFF01, 0xFF5F)
    if chr(code) not in _NATURAL
}
_HALF_WIDTH_KATAKANA = re.compile(r"[\uff61-\uff9f]+")
_ANY_FORM = re.compile(f"[{''.join(map(chr, _NARROW_OF))}\uff61-\uff9f]")


def normalise_width(text: str) -> str:
    """The text with full-width letters, digits and signs as ASCII, `ＡＢ１＠` as `AB1@`.

    The punctuation that Chinese and Japanese have of their own stays wide; half-width katakana
    become full-width ones, voiced marks joined to their letters.
    """
    if text.isascii() or not _ANY_FORM.search(text):
        return text
    return _HALF_WIDTH_KATAKANA.sub(_full_width, text.translate(_NARROW_OF))


def _full_width(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])
