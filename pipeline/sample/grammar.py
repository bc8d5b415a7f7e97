"""Templates into sentences: `[a|b]` is a choice, `{slot}` is filled, both may nest."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from pipeline.sample.words.shape import Language, Pool

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([a-z_]+)\}")
_CURRENCIES = ("${}", "{} EUR", "€{}", "{} €", "{} USD", "£{}")
_ORDERS = ("#{}", "ORD-{}", "{}-X", "no. {}", "DE-{}")


def _amount(rng: Random) -> str:
    figure = f"{rng.randint(4, 480)}.{rng.choice(('00', '90', '99', '50', '49'))}"
    return rng.choice(_CURRENCIES).format(figure)


def _order(rng: Random) -> str:
    return rng.choice(_ORDERS).format(rng.randint(10_000, 99_999))


def _code(rng: Random) -> str:
    return "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXYZ23456789") for _ in range(rng.randint(6, 11)))


def _phone(rng: Random) -> str:
    return f"+1 555 01{rng.randint(0, 99):02d}"  # 555-01xx is reserved for made-up numbers


# What no person is behind: numbers of every kind, in any language.
_MADE_UP: Mapping[str, Callable[[Random], str]] = {
    "amount": _amount,
    "code": _code,
    "day": lambda rng: str(rng.randint(1, 28)),
    "days": lambda rng: str(rng.randint(3, 25)),
    "dozens": lambda rng: str(rng.randint(15, 90)),
    "few": lambda rng: str(rng.randint(2, 9)),
    "number": lambda rng: str(rng.randint(20, 99_999)),
    "order": _order,
    "phone": _phone,
    "time": lambda rng: f"{rng.randint(6, 22)}:{rng.randint(0, 59):02d}",
    "version": lambda rng: f"{rng.randint(1, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
}


class Speaker:
    """Says things in one language; `pinned` slots keep one value over a whole text."""

    def __init__(self, rng: Random, language: Language) -> None:
        self._rng = rng
        self._language = language
        self._pinned: dict[str, str] = {}

    def pin(self, slot: str) -> str:
        """The value that `slot` has from now on."""
        self._pinned[slot] = self._fill(slot)
        return self._pinned[slot]

    def say(self, pool: Pool) -> str:
        """One template of the pool, expanded."""
        return self.expand(self._rng.choice(pool))

    def say_some(self, pool: Pool, count: int) -> list[str]:
        """Up to `count` different templates of the pool, expanded."""
        return [self.expand(text) for text in self._rng.sample(pool, min(count, len(pool)))]

    def expand(self, template: str) -> str:
        """The template with its choices made and its slots filled, the first letter a capital."""
        text = self._expand(template)
        return text[:1].upper() + text[1:]

    def join(self, sentences: list[str]) -> str:
        """A paragraph; some scripts have no space between sentences."""
        return (" " if self._language.spaced else "").join(sentences)

    def _expand(self, template: str) -> str:
        chosen, count = template, 1
        while count:
            chosen, count = _CHOICE.subn(self._choose, chosen)
        return _SLOT.sub(lambda match: self._fill(match[1]), chosen)

    def _choose(self, match: re.Match[str]) -> str:
        options: list[str] = match[1].split("|")
        return self._rng.choice(options)

    def _fill(self, slot: str) -> str:
        if slot in self._pinned:
            return self._pinned[slot]
        if slot == "email":
            return self._email()
        if slot in _MADE_UP:
            return _MADE_UP[slot](self._rng)
        return self._expand(self._rng.choice(self._language.slots[slot]))

    def _email(self) -> str:
        name = unicodedata.normalize("NFKD", self._fill("name"))
        ascii_name = re.sub(r"[^a-z]", "", name.lower()) or "user"
        return f"{ascii_name}{self._rng.randint(1, 99)}@example.com"
