"""Changed copies of training texts: no label is claimed for them, the teacher reads them anew."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.distil import AugmentConfig

# Scripts that put no space between words are cut into their characters.
_WORD = regex.compile(r"\s*(?:[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]\p{M}*|[^\s\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]+)")  # fmt: skip # noqa: E501
_LONGEST_SPAN = 3


def changed_texts(
    texts: Sequence[str], config: AugmentConfig, *, key: str
) -> tuple[str, ...] | None:
    """A record's texts with words left out and spans moved; None where that changes nothing.

    Equal `key`s give equal choices. A text never loses its last word.
    """
    chooser = random.Random(key)  # noqa: S311 - a choice of words, not a secret
    changed = tuple(_changed(text, config, chooser) for text in texts)
    return None if changed == tuple(texts) else changed


def _changed(text: str, config: AugmentConfig, chooser: random.Random) -> str:
    words = _WORD.findall(text)
    if len(words) < 2:
        return text
    kept = [word for word in words if chooser.random() >= config.word_drop]
    kept = kept or [chooser.choice(words)]
    to_move = config.span_swap * len(kept)
    while to_move > 0 and len(kept) > 1:
        # What is left over after whole words decides by chance, so that short texts change too.
        if to_move < 1 and chooser.random() >= to_move:
            break
        to_move -= _swap(kept, chooser)
    return "".join(kept).strip()


def _swap(words: list[str], chooser: random.Random) -> int:
    """Exchanges two neighbouring spans in place; answers how many words that moved."""
    border = chooser.randint(1, len(words) - 1)
    start = max(0, border - chooser.randint(1, _LONGEST_SPAN))
    stop = min(len(words), border + chooser.randint(1, _LONGEST_SPAN))
    left, right = words[start:border], words[border:stop]
    if start == 0:  # the first word of a text has no space before it, the others mostly have
        left = [_spaced(left[0], like=right[0]), *left[1:]]
    words[start:stop] = right + left
    return stop - start


def _spaced(word: str, *, like: str) -> str:
    """The word with the white space that stands before another one."""
    return like[: len(like) - len(like.lstrip())] + word.lstrip()
