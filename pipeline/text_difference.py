"""What differs between two versions of a text, for people's eyes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
# Comparing takes the square of what differs; over this one stretch stands for all of it.
_MAX_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text that is the same in both versions, or in one of them only."""

    kind: Literal["same", "removed", "added"]
    text: str


def differences(before: str, after: str) -> tuple[Span, ...]:
    """Spans, word by word: those not `added` joined are `before`, those not `removed` `after`."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    spans = [
        Span("same", "".join(old[:head])),
        *_middle(old_middle, new_middle),
        Span("same", "".join(old[len(old) - tail :])),
    ]
    return tuple(span for span in spans if span.text)


def visible(text: str) -> str:
    r"""The text with what has no shape of its own as an escape, `\u200b`; line ends stay."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many words the two begin with alike."""
    count = 0
    for mine, theirs in zip(old, new, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _middle(old: Sequence[str], new: Sequence[str]) -> list[Span]:
    if max(len(old), len(new)) > _MAX_WORDS:
        return [Span("removed", "".join(old)), Span("added", "".join(new))]
    spans: list[Span] = []
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            spans.append(Span("same", "".join(old[i1:i2])))
        else:
            spans += [
                Span("removed", "".join(old[i1:i2])),
                Span("added", "".join(new[j1:j2])),
            ]
    return spans
