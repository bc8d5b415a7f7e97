"""Which languages people write in, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.sample.chance import draw
from pipeline.sample.words import (
    chinese,
    english,
    french,
    german,
    italian,
    japanese,
    portuguese,
    spanish,
)

if TYPE_CHECKING:
    from random import Random

    from pipeline.sample.words.shape import Language

LANGUAGES: dict[str, Language] = {
    module.LANGUAGE.code: module.LANGUAGE
    for module in (english, german, spanish, french, portuguese, italian, chinese, japanese)
}
LANGUAGE_SHARES = {
    "en": 0.60,
    "de": 0.11,
    "es": 0.09,
    "fr": 0.08,
    "pt": 0.06,
    "it": 0.03,
    "zh": 0.015,
    "ja": 0.015,
}


def draw_language(rng: Random) -> Language:
    """A language, by its share."""
    return LANGUAGES[draw(rng, LANGUAGE_SHARES)]
