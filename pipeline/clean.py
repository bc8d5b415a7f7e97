"""Cleaning: an ordered list of pure functions, the very same in training and scoring."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pipeline.engines.check_digits import mask_cards, mask_ibans
from pipeline.engines.confusables import unmask_homoglyphs
from pipeline.engines.control_characters import drop_controls
from pipeline.engines.html_text import html_to_text
from pipeline.engines.national_ids import NationalIdMask
from pipeline.engines.phone_numbers import PhoneMask
from pipeline.engines.unicode_repair import repair_unicode
from pipeline.markdown_text import markdown_to_text
from pipeline.pii import mask_emails, mask_ips, mask_url_secrets
from pipeline.quoted_mail import cut_quoted_mail
from pipeline.repeats import RepeatCut
from pipeline.special_tokens import SpecialTokens
from pipeline.width import normalise_width
from schemas.fingerprint import digest_of
from schemas.task import CleanConfig, CleanStep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Raise it with every change of what any step does: bundles refuse another cleaner.
CLEANER_VERSION = "2"

ORDER: tuple[CleanStep, ...] = get_args(CleanStep)

# Undoing one layer can bring another to light: mojibake around a zero-width space, HTML escaped
# inside HTML. Sloppy systems make two or three layers; one pass more shows that nothing is left.
# Deeper ones are built on purpose, and each could cost a pass over the whole text.
_MAX_PASSES = 8

# No markup, digits or addresses: of what is left no step can make anything.
_NOT_PLAIN = re.compile(r"[^A-Za-z.,!?' \n]")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A clean text, and which steps changed something on the way."""

    text: str
    changed: tuple[CleanStep, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one step did in one pass over a text; passes count from 1.

    The step is `flatten` where a text would not come to rest and was made plain letters.
    """

    pass_number: int
    step: CleanStep | Literal["flatten"]
    before: str
    after: str


class Cleaner:
    """Cleans texts for a backbone with the given special tokens.

    `version` names all that decides what comes out; it travels with the bundle.

    Raises:
        ConfigError: a phone region or a module of national ids does not exist.
    """

    def __init__(self, config: CleanConfig, *, special_tokens: tuple[str, ...]) -> None:
        functions: Mapping[CleanStep, Callable[[str], str]] = {
            "unicode": repair_unicode,
            "controls": drop_controls,
            "html": html_to_text,
            "quoted_mail": cut_quoted_mail,
            "markdown": markdown_to_text,
            "width": normalise_width,
            "homoglyphs": unmask_homoglyphs,
            "repeats": RepeatCut(config.max_repeats),
            "pii_url": mask_url_secrets,
            "pii_email": mask_emails,
            "pii_iban": mask_ibans,
            "pii_card": mask_cards,
            "pii_ip": mask_ips,
            "pii_national_id": NationalIdMask(config.national_ids),
            "pii_phone": PhoneMask(config.phone_regions),
            "special_tokens": SpecialTokens(special_tokens).neutralise,
            "whitespace": collapse_whitespace,
        }
        self._steps = [(step, functions[step]) for step in config.active]
        self.version = f"{CLEANER_VERSION}-{_settings_digest(config, special_tokens)[:12]}"

    def clean(self, text: str) -> Cleaned:
        """The clean text; cleaning it once more changes nothing."""
        changes = self.explain(text)
        changed = {change.step for change in changes}
        after = changes[-1].after if changes else text
        return Cleaned(after, tuple(step for step in ORDER if step in changed))

    def explain(self, text: str) -> tuple[Change, ...]:
        """Every change on the way to the clean text, in order; none for a clean one.

        All steps run until a pass changes nothing. A text that is not at rest by then was built to
        be so: it is flattened to plain letters, which come to rest at once.
        """
        changes: list[Change] = []
        for number in range(1, _MAX_PASSES + 1):
            found = self._pass(text, number)
            if not found:
                return tuple(changes)
            changes += found
            text = found[-1].after
        flat = _NOT_PLAIN.sub(" ", text)
        changes.append(Change(_MAX_PASSES + 1, "flatten", text, flat))
        return tuple(changes + self._pass(flat, _MAX_PASSES + 1))

    def _pass(self, text: str, number: int) -> list[Change]:
        changes: list[Change] = []
        for step, function in self._steps:
            result = function(text)
            if result != text:
                changes.append(Change(number, step, text, result))
                text = result
        return changes


def _settings_digest(config: CleanConfig, special_tokens: tuple[str, ...]) -> str:
    """Hash over what changes the outcome; settings of steps that do not run change nothing."""
    active = config.active
    settings = {
        "phone_regions": sorted(set(config.phone_regions)) if "pii_phone" in active else [],
        "national_ids": sorted(set(config.national_ids)) if "pii_national_id" in active else [],
        "max_repeats": config.max_repeats if "repeats" in active else None,
        "special_tokens": sorted(set(special_tokens)),
    }
    return digest_of([CLEANER_VERSION, list(active), settings])


def collapse_whitespace(text: str) -> str:
    """Runs of spaces as one space, line ends and blank lines as one newline, none at the ends."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines))
