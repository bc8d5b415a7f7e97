"""Look-alike letters of other scripts inside a word, by the Unicode table of confusables."""

from __future__ import annotations

import re
from functools import cache

from confusable_homoglyphs.confusables import confusables_data  # type: ignore[import-untyped]

_LATIN = "A-Za-z"
_OTHERS = {"Cyrillic": r"\u0400-\u052f", "Greek": r"\u0370-\u03ff\u1f00-\u1fff"}
_ALL_OTHERS = "".join(_OTHERS.values())
# Where two scripts meet inside a word; the search for it costs far less than looking at words.
_MEETING = re.compile(rf"[{_LATIN}][\d_]*[{_ALL_OTHERS}]|[{_ALL_OTHERS}][\d_]*[{_LATIN}]")
_WORD = re.compile(r"\w+")
_IS_LATIN = re.compile(f"[{_LATIN}]")
_IS_OTHER = {script: re.compile(f"[{chars}]") for script, chars in _OTHERS.items()}
# `kΩ`, `μm`, `ΔT` and `dB` are no tricks.
_FEWEST_LETTERS = 4


def unmask_homoglyphs(text: str) -> str:
    """The text with words of mixed scripts in the script that most of their letters have.

    `pаypal` with a Cyrillic letter becomes Latin, `Mосква` with a Latin one Cyrillic. Where a
    letter of the smaller script has no look-alike, the larger one gives way; where that cannot be
    either, the word stays as it is, and so does every word of one script.
    """
    if text.isascii() or not _MEETING.search(text):
        return text
    return _WORD.sub(_in_one_script, text)


def _in_one_script(match: re.Match[str]) -> str:
    word = match[0]
    latin = _IS_LATIN.findall(word)
    found = {script: letters for script, one in _IS_OTHER.items() if (letters := one.findall(word))}
    if word.isascii() or not latin or len(found) != 1:
        return word
    ((script, others),) = found.items()
    if len(latin) + len(others) < _FEWEST_LETTERS:
        return word
    to_latin, from_latin = _tables(script)
    ways = [(others, to_latin), (latin, from_latin)]
    ways.sort(key=lambda way: len(way[0]))  # fewest changes first
    for letters, table in ways:
        strange = set(letters)
        if strange <= table.keys():
            return "".join(table[char] if char in strange else char for char in word)
    return word


@cache
def _tables(script: str) -> tuple[dict[str, str], dict[str, str]]:
    """Latin look-alikes of a script's letters, and the other way round."""
    to_latin: dict[str, str] = {}
    for letter, looks_like in confusables_data.items():
        if not (len(letter) == 1 and letter.isalpha() and _IS_OTHER[script].match(letter)):
            continue
        same = [entry["c"] for entry in looks_like if _IS_LATIN.fullmatch(entry["c"])]
        same.sort(key=lambda char: (char.isupper() != letter.isupper(), char))
        if same:  # the table has `l` as what looks like a capital I
            to_latin[letter] = "I" if letter.isupper() and same[0] == "l" else same[0]
    from_latin: dict[str, str] = {}
    for letter in sorted(to_latin):
        latin = to_latin[letter]
        if latin.isupper() == letter.isupper():
            from_latin.setdefault(latin, letter)
    return to_latin, from_latin
