"""Cells of label columns: lists and pairs, in the forms that files have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from schemas.errors import did_you_mean
from schemas.head import NO_POLARITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.head import HeadConfig

Pair = tuple[str, str | None]  # an aspect and its label; no label where the cell has half a pair


class Problem(NamedTuple):
    """What is wrong with a label: equal ones are counted together."""

    what: str
    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The problem, with the known name that may have been meant."""
        return f"{self.what} {self.name!r}{did_you_mean(self.name, self.known)}"


def label_list(value: Any, head: HeadConfig) -> list[str]:
    """The labels in a cell of a `multi` column: a list, also as JSON, or separated text."""
    found = _parsed(value)
    if _is_list(found):
        return [str(label).strip() for label in found]
    return _parts(str(value), head)


def aspect_pairs(value: Any, head: HeadConfig) -> list[Pair] | None:
    """What a cell of an `aspect` column says; None where it is empty, so that nothing is known.

    An object by aspect; a list of such objects, of pairs, of objects with two fields (the aspect
    first, whatever they are called) or of texts `food:positive`; each also as JSON; or such texts
    with a separator between them. Null in an object, as structs have it, is no pair.
    """
    found = _parsed(value)
    if found is None or (isinstance(found, str) and not found):
        return None
    if isinstance(found, Mapping):
        return list(_named(found))
    if _is_list(found):
        return [pair for item in found for pair in _pairs_of(item, head)]
    return [_split(part, head) for part in _parts(str(found), head)]


def choices(pairs: Iterable[Pair], head: HeadConfig) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """The choice of each aspect `(A,)`, 0 for none and others the label's index + 1, and problems.

    An aspect that has one label twice is sound, one that has two labels is not. Each problem is
    told once.
    """
    names = (NO_POLARITY, *head.labels)
    found: dict[str, str] = {}
    problems = []
    for aspect, label in pairs:
        if aspect not in head.aspects:
            problems.append(Problem("unknown aspect", aspect, head.aspects))
        elif label is None:
            problems.append(Problem("no label for aspect", aspect))
        elif label not in names:
            problems.append(Problem("unknown label", label, head.labels))
        elif found.setdefault(aspect, label) != label:
            problems.append(Problem("two labels for aspect", aspect))
    chosen = tuple(names.index(found.get(aspect, NO_POLARITY)) for aspect in head.aspects)
    return chosen, tuple(dict.fromkeys(problems))


def _parsed(value: Any) -> Any:
    """A cell as it is, text without white space around it, JSON inside of a text as its value."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            pass
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _parts(text: str, head: HeadConfig) -> list[str]:
    return [part.strip() for part in text.split(head.separator) if part.strip()]


def _named(found: Mapping[Any, Any]) -> Iterator[Pair]:
    for aspect, label in found.items():
        if label is not None:
            yield str(aspect).strip(), str(label).strip()


def _pairs_of(item: Any, head: HeadConfig) -> Iterator[Pair]:
    """The pairs that one item of a list stands for."""
    if isinstance(item, Mapping):
        if len(item) == 2 and not any(name in head.aspects for name in item):
            aspect, label = item.values()
            item = {aspect: label}
        yield from _named(item)
    elif _is_list(item) and len(item) == 2:
        yield from _named({item[0]: item[1]})
    else:
        yield _split(str(item).strip(), head)


def _split(text: str, head: HeadConfig) -> Pair:
    """At the last separator: names of aspects hold one rather than labels do."""
    aspect, separator, label = text.rpartition(head.pair_separator)
    return (aspect.strip(), label.strip()) if separator else (text, None)
