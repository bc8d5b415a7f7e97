r"""What a reader sees as one character: where graphemes of a text begin and end.

A family of emoji, a flag, a letter with its accents or a Devanagari cluster is one grapheme
(Unicode Annex 29, `\X`). To find one border the rules look backwards, often one character, at worst
to the beginning of the text, so that asking at each place of a hostile text costs its square.
"""

from __future__ import annotations

from bisect import bisect_right

import regex

# Flags side by side are told apart by counting their letters from the first one. `\X` counts anew
# at each (25 s for 50,000 of them); from a known border they can be taken in pairs instead.
_GRAPHEME = regex.compile(
    r"\p{Regional_Indicator}{2}(?=[\p{Regional_Indicator}\p{GCB=Other}\p{GCB=Control}]|\Z)|\X"
)
# Between two such characters there is always a border, whatever stands before them.
_CERTAIN = regex.compile(
    r"(?r)[\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}][\p{GCB=Other}\p{GCB=Control}\p{GCB=CR}]"
)
_LOOK_BACK = 64  # characters; nearly all texts have a certain border within two


class Graphemes:
    """Borders between the graphemes of one text, looked for only near the places asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._all: list[int] | None = None

    def floor(self, at: int) -> int:
        """The last border at or before a place; 0 and the end of the text are borders."""
        if at >= len(self._text):
            return len(self._text)
        if self._all is None:
            near = _CERTAIN.search(self._text, max(0, at - _LOOK_BACK), at + 1)
            if near is not None:
                return self._scan(near.start() + 1, at)
            if at < _LOOK_BACK:
                return self._scan(0, at)
            self._all = [0, *(found.end() for found in _GRAPHEME.finditer(self._text))]
        return self._all[bisect_right(self._all, at) - 1]

    def is_border(self, at: int) -> bool:
        """Whether a cut at this place splits no grapheme."""
        return self.floor(at) == at

    def _scan(self, border: int, at: int) -> int:
        """The same from a border that is known to be one."""
        # The slice ends behind the character at `at`: what follows has no say, and may be endless.
        for grapheme in _GRAPHEME.finditer(self._text, border, at + 1):
            border = grapheme.start()
        return border


def cut_at_grapheme(text: str, max_chars: int) -> str:
    """The beginning of a text, at most `max_chars` long, without half a grapheme at its end.

    A grapheme that fills all of it (a letter under a heap of accents) is cut inside.
    """
    if len(text) <= max_chars:
        return text
    # One character more tells whether a grapheme ends at the bound.
    cut = Graphemes(text[: max_chars + 1]).floor(max_chars)
    return text[: cut or max_chars]
