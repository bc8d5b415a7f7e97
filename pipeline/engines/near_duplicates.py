"""Texts that are nearly another one: sketches find the candidates, counting decides (rensa).

A text is the set of its character shingles, so that scripts without spaces need no word breaker.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING

from rensa import RMinHash, RMinHashLSH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SHINGLE_CHARS = 4
_SLOTS = 128  # of a sketch; its estimate is good to about 0.04
_SEED = 1
_MIN_RECALL = 0.99  # share of pairs just at the bound that must become candidates
_MAX_CANDIDATES = 16  # counted per text, so that a thousand variants of a form letter cost little
_TEXTS_AT_ONCE = 256


def near_matches(
    texts: Sequence[str], among: Sequence[str], *, similarity: float
) -> dict[str, str]:
    """For each of `texts` that is nearly one `among` others, the most similar of these.

    `similarity` is the least Jaccard index of their shingle sets. One pair in a hundred just at
    this bound may be missed, fewer above it; none below it is given.
    """
    if not texts or not among:
        return {}
    index = RMinHashLSH(similarity, _SLOTS, bands_for(similarity))
    known = list(_sketches(among))
    index.insert_many(known)
    found: dict[str, str] = {}
    for text, sketch in zip(texts, _sketches(texts), strict=True):
        # Equal estimates go by place, so that the answer is the same on every run.
        likely = heapq.nsmallest(
            _MAX_CANDIDATES,
            ((-sketch.jaccard(known[place]), place) for place in index.query(sketch)),
        )
        shingles = set(_shingles(text))
        measured = [(jaccard(shingles, among[place]), -place) for _, place in likely]
        if measured and (best := max(measured))[0] >= similarity:
            found[text] = among[-best[1]]
    return found


def jaccard(shingles: set[str], text: str) -> float:
    """Shared shingles over all shingles of a set and a text."""
    others = set(_shingles(text))
    shared = len(shingles & others)
    return shared / (len(shingles) + len(others) - shared)


def bands_for(similarity: float) -> int:
    """The fewest bands that make candidates of nearly all pairs at a similarity.

    Two sketches cut into b bands of r slots agree in one at least with probability
    1 - (1 - s^r)^b (Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", 3.4.2).
    """
    for bands in (4, 8, 16, 32):
        if 1 - (1 - similarity ** (_SLOTS // bands)) ** bands >= _MIN_RECALL:
            return bands
    return 64


def _sketches(texts: Iterable[str]) -> Iterator[RMinHash]:
    rest = iter(texts)
    while some := [_shingles(text) for text in islice(rest, _TEXTS_AT_ONCE)]:
        yield from RMinHash.from_token_sets(some, num_perm=_SLOTS, seed=_SEED)


def _shingles(text: str) -> list[str]:
    """All runs of a few characters; a shorter text is its own only shingle."""
    last = max(1, len(text) - _SHINGLE_CHARS + 1)
    return [text[start : start + _SHINGLE_CHARS] for start in range(last)]
