"""Characters that nobody sees: controls, bidi overrides, zero-width characters, tags."""

from __future__ import annotations

import re

import regex

# Scripts whose letters need the zero-width (non-)joiner to be spelt right.
_JOINING_SCRIPTS = (
    "Arabic Syriac Mongolian Devanagari Bengali Gurmukhi Gujarati Oriya Tamil Telugu Kannada "
    "Malayalam Sinhala Khmer Myanmar Tibetan"
)
_JOINING = "[" + "".join(rf"\p{{Script={script}}}" for script in _JOINING_SCRIPTS.split()) + "]"
_EMOJI = r"\p{Extended_Pictographic}"

_TERMINAL_ESCAPE = r"\x1B\[[0-9;]*+[A-Za-z]"
_INVISIBLE = (
    r"[\x00-\x08\x0E-\x1F\x7F-\x84\x86-\x9F"  # C0 and C1; white space is another step's work
    r"\u00AD\u034F\u061C\u180E\u3164\uFFA0"  # soft hyphen, joiner, Arabic mark, blank letters
    r"\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB"
    r"\uFE00-\uFE0E\U000E0000-\U000E01EF"  # variation selectors, tags
    r"\uFDD0-\uFDEF\uFFFE\uFFFF]"  # no characters
)
_LONE_JOINER = (
    rf"(?<!{_EMOJI}[\uFE0F\p{{Emoji_Modifier}}]?(?=\u200D{_EMOJI}))"
    rf"(?<!{_JOINING}(?=[\u200C\u200D]{_JOINING}))"
    r"(?<!\p{Indic_Syllabic_Category=Virama}(?=\u200D))"
    r"[\u200C\u200D]"
)
_LONE_SELECTOR = rf"(?<!{_EMOJI}|[0-9#*](?=\uFE0F\u20E3))\uFE0F"
# Flags of England, Scotland and Wales: a black flag, the region in tag characters, the end tag.
# Anywhere else tags are text that nobody sees.
_TAG_FLAG = (
    r"\U0001F3F4[\U000E0061-\U000E007A]{2}[\U000E0030-\U000E0039\U000E0061-\U000E007A]{1,3}"
    r"\U000E007F"
)
_DROPPED = regex.compile(
    f"(?P<kept>{_TAG_FLAG})|{_TERMINAL_ESCAPE}|{_INVISIBLE}|{_LONE_JOINER}|{_LONE_SELECTOR}"
)
# What the pattern above can begin with but for the flag: `re` finds it several times faster.
_SUSPECT = re.compile(_INVISIBLE[:-1] + r"\u200C\u200D\uFE0F]")


def drop_controls(text: str) -> str:
    """The text without invisible characters.

    What stays: white space, joiners inside emoji sequences and between letters of scripts that
    need them, the emoji variation selector behind an emoji, and the tags of a flag.
    """
    if not _SUSPECT.search(text):
        return text
    return str(_DROPPED.sub(lambda match: match["kept"] or "", text))
