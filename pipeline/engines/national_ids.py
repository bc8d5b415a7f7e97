"""National identity, tax and insurance numbers, by the modules of python-stdnum a task names."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import stdnum

from pipeline.pii import NATIONAL_ID
from schemas.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP = re.compile(r"[0-9A-Za-z]+")
_GAPS = frozenset(" \u00a0-./")
_MAX_GROUPS = 7
_FEWEST_CHARS, _MOST_CHARS = 7, 22
_FEWEST_DIGITS = 5
_MOST_LAST_DIGITS = 5


class NationalIdMask:
    """Masks the ids that the named modules (`us.ssn`, `de.idnr`) call valid.

    Raises:
        ConfigError: python-stdnum has no such module.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._modules = [_module(name) for name in names]

    def __call__(self, text: str) -> str:
        """The text with each id as `[ID]`."""
        if not self._modules:
            return text
        parts: list[str] = []
        position = 0
        groups = list(_GROUP.finditer(text))
        for index, group in enumerate(groups):
            if group.start() < position:
                continue
            for end in _ends(text, groups, index):
                if self._is_id(text[group.start() : end]):
                    parts += [text[position : group.start()], NATIONAL_ID]
                    position = end
                    break
        return "".join([*parts, text[position:]]) if parts else text

    def _is_id(self, candidate: str) -> bool:
        return any(_accepts(module, candidate) for module in self._modules)


def _ends(text: str, groups: list[re.Match[str]], first: int) -> Iterator[int]:
    """Where an id that starts with a group may end, the farthest first."""
    start = groups[first].start()
    ends: list[int] = []
    if start and text[start - 1] == "_":
        return
    chars = digits = 0
    for index in range(first, min(first + _MAX_GROUPS, len(groups))):
        group = groups[index]
        if index > first:
            gap = text[groups[index - 1].end() : group.start()]
            if gap not in _GAPS:
                break
        chars += len(group[0])
        if chars > _MOST_CHARS:
            break
        digits += sum(char.isdigit() for char in group[0])
        if chars >= _FEWEST_CHARS and digits >= _FEWEST_DIGITS and _is_end(text, group.end()):
            ends.append(group.end())
    yield from reversed(ends)


def _is_end(text: str, position: int) -> bool:
    return position == len(text) or text[position] != "_"


def _accepts(module: Any, candidate: str) -> bool:
    number = candidate.replace("\u00a0", " ")
    if not module.is_valid(number):
        return False
    compact = module.compact(number)
    if not compact.isdigit():
        return True
    # Where any last digit would do there is no check digit, and an order number may be as long:
    # then an id is only what is spelt as one, `536-90-4399`.
    valid = [digit for digit in "0123456789" if module.is_valid(compact[:-1] + digit)]
    if len(valid) < _MOST_LAST_DIGITS:
        return True
    return hasattr(module, "format") and bool(module.format(compact) == number)


@cache
def _known() -> dict[str, str]:
    """Module path by name; countries whose code is a Python word have `_` in theirs."""
    root = stdnum.__path__[0]
    return {
        f"{country.rstrip('_')}.{name}": f"stdnum.{country}.{name}"
        for _, country, is_package in pkgutil.iter_modules([root])
        if is_package and len(country.rstrip("_")) == 2
        for _, name, _ in pkgutil.iter_modules([f"{root}/{country}"])
    }


def _module(name: str) -> Any:
    if name not in _known():
        raise ConfigError(
            f"clean.national_ids: python-stdnum has no module {name!r}"
            f"{did_you_mean(name, _known())}; expected names such as us.ssn or de.idnr"
        )
    return importlib.import_module(_known()[name])
