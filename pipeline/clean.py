"""Cleaning: an ordered list of pure functions, the very same in training and scoring."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from pipeline.engines.control_characters import drop_controls
from pipeline.engines.html_text import html_to_text
from pipeline.engines.unicode_repair import repair_unicode
from pipeline.special_tokens import SpecialTokens
from schemas.fingerprint import digest_of
from schemas.task import CleanConfig, CleanStep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Raise it with every change of what any step does: bundles refuse another cleaner.
CLEANER_VERSION = "1"

ORDER: tuple[CleanStep, ...] = get_args(CleanStep)

# Undoing one layer can bring another to light: mojibake around a zero-width space, HTML escaped
# inside HTML. Sloppy systems make two or three layers; one pass more shows that nothing is left.
# Deeper ones are built on purpose, and each could cost a pass over the whole text.
_MAX_PASSES = 8

_LINE_ENDS = re.compile(r"\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r" ?\n[ \n]*")
_NOT_PLAIN = re.compile(r"[^0-9A-Za-z.,;:!?' \n-]")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A clean text, and which steps changed something on the way."""

    text: str
    changed: tuple[CleanStep, ...]


class Cleaner:
    """Cleans texts for a backbone with the given special tokens.

    `version` names all that decides what comes out; it travels with the bundle.
    """

    def __init__(self, config: CleanConfig, *, special_tokens: tuple[str, ...]) -> None:
        self._tokens = SpecialTokens(special_tokens)
        functions: Mapping[CleanStep, Callable[[str], str]] = {
            "unicode": repair_unicode,
            "controls": drop_controls,
            "html": html_to_text,
            "special_tokens": self._tokens.neutralise,
            "whitespace": collapse_whitespace,
        }
        self._steps = [(step, functions[step]) for step in config.active if step in functions]
        settings = [[step for step, _ in self._steps], sorted(set(special_tokens))]
        digest = digest_of([CLEANER_VERSION, *settings])
        self.version = f"{CLEANER_VERSION}-{digest[:12]}"

    def clean(self, text: str) -> Cleaned:
        """The clean text; cleaning it once more changes nothing.

        All steps run until a pass changes nothing. A text that is not at rest by then was built to
        be so: it is flattened to plain ASCII without markup, which no step changes any more.
        """
        changed: set[CleanStep] = set()
        for _ in range(_MAX_PASSES):
            before = text
            text = self._pass(text, changed)
            if text == before:
                break
        else:
            text = self._pass(_NOT_PLAIN.sub(" ", text), changed)
        return Cleaned(text, tuple(step for step in ORDER if step in changed))

    def _pass(self, text: str, changed: set[CleanStep]) -> str:
        for step, function in self._steps:
            result = function(text)
            if result != text:
                changed.add(step)
                text = result
        return text


def collapse_whitespace(text: str) -> str:
    """Runs of spaces as one space, line ends and blank lines as one newline, none at the ends."""
    text = _LINE_ENDS.sub("\n", text)
    text = _SPACES.sub(" ", text)
    return _BLANK_LINES.sub("\n", text).strip()
