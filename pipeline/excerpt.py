"""The beginning of a foreign text, fit to be shown: on one line, bounded, personal data masked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from pipeline.clean import Cleaner
from schemas.task import CleanStep

if TYPE_CHECKING:
    from schemas.task import CleanConfig

_PII_STEPS: tuple[CleanStep, ...] = tuple(s for s in get_args(CleanStep) if s.startswith("pii_"))
# Masks see more than is shown, so that no half of an address is left at the end.
_MASKED_PER_SHOWN = 8
_JSON_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")


def printable(text: str, *, max_chars: int) -> str:
    r"""The beginning of a text on one line; what has no shape of its own is an escape (`\u202e`).

    A terminal obeys control characters, and bidi controls turn around what is beside them.
    """
    shown: list[str] = []
    left = max_chars
    for char in text[: max_chars + 1]:
        cell = char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        left -= len(cell)
        if left < 0:
            return "".join(shown) + "…"
        shown.append(cell)
    return "".join(shown)


class Excerpts:
    """Makes excerpts of raw rows with the task's own masks, or without any unless `masked`."""

    def __init__(self, clean: CleanConfig, *, max_chars: int, masked: bool = True) -> None:
        self._max_chars = max_chars
        steps = tuple(s for s in _PII_STEPS if s != "pii_national_id" or clean.national_ids)
        config = clean.model_copy(update={"steps": steps, "also": (), "without": ()})
        self._masks = Cleaner(config, special_tokens=()) if masked else None

    def of(self, raw: bytes) -> str:
        """What people may see of a row's bytes; those that are not UTF-8 are written in hex."""
        # A character has at most four bytes, a JSON escape of one has six.
        seen = raw[: 6 * _MASKED_PER_SHOWN * self._max_chars]
        text = seen.decode("utf-8", errors="backslashreplace")
        if self._masks is not None:
            # An address in a JSON file may hide from the masks behind escapes.
            text = _JSON_ESCAPES.sub(_unescaped, text)[: _MASKED_PER_SHOWN * self._max_chars]
            text = self._masks.clean(text).text
        return printable(text, max_chars=self._max_chars)


def _unescaped(match: re.Match[str]) -> str:
    r"""Characters of `\u00e9` escapes; pairs of surrogates are joined, lone ones replaced."""
    units = bytes.fromhex(match[0].replace("\\u", ""))
    return units.decode("utf-16-be", errors="replace")
