"""Characters that a writer held down: `soooooo` and `!!!!!!!!`."""

from __future__ import annotations

import re

import regex

# A skin tone, an accent, the tags of a flag belong to the sign before them. `\X` says the same, but
# takes the square of the length of a text made of accents.
_GRAPHEME = (
    r"(?:\p{Regional_Indicator}{2}|(?!\d(?!\p{M}))\S)"
    r"(?:[\p{M}\p{Emoji_Modifier}\U000E0020-\U000E007F]|\u200D\S){0,10}+"
)


class RepeatCut:
    """Cuts runs of one grapheme to at most `most`; digits and white space are exempt."""

    def __init__(self, most: int) -> None:
        self._most = most
        repeats = f"{{{most},}}+"
        self._ascii = re.compile(rf"([^\s\d])\1{repeats}")
        self._graphemes = regex.compile(rf"({_GRAPHEME})\1{repeats}")

    def __call__(self, text: str) -> str:
        """The text with every run of more than `most` cut to `most`."""
        if text.isascii():
            return self._ascii.sub(self._cut, text)
        return str(self._graphemes.sub(self._cut, text))

    def _cut(self, match: re.Match[str] | regex.Match[str]) -> str:
        return str(match[1]) * self._most
