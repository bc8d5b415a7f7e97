"""How people type: typos, letter case, missing punctuation, emoji."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.sample.chance import happens

if TYPE_CHECKING:
    from random import Random

TYPO_RATE = 0.25
LOWER_CASE_RATE = 0.12
UPPER_CASE_RATE = 0.03
NO_PUNCTUATION_RATE = 0.06
_WORD = re.compile(r"\b[A-Za-zÀ-ÿ]{5,}\b")
_ENDINGS = re.compile(r"[.,!](?=\s|$)")


def roughen(text: str, rng: Random, *, emoji: tuple[str, ...], emoji_rate: float) -> str:
    """The text as a person in a hurry would have typed it."""
    if happens(rng, TYPO_RATE):
        for _ in range(rng.randint(1, 3)):
            text = _misspell_one(text, rng)
    if happens(rng, LOWER_CASE_RATE):
        text = text.lower()
    elif happens(rng, UPPER_CASE_RATE):
        text = text.upper()
    if happens(rng, NO_PUNCTUATION_RATE):
        text = _ENDINGS.sub("", text)
    if happens(rng, emoji_rate):
        text = f"{text} {rng.choice(emoji) * rng.choice((1, 1, 2, 3))}"
    return text


def _misspell_one(text: str, rng: Random) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    word = rng.choice(words)
    return text[: word.start()] + _misspell(word[0], rng) + text[word.end() :]


def _misspell(word: str, rng: Random) -> str:
    at = rng.randrange(1, len(word) - 1)
    head, here, tail = word[:at], word[at], word[at + 1 :]
    swapped = head + tail[0] + here + tail[1:]
    return rng.choice((head + tail, head + here * 2 + tail, swapped))
