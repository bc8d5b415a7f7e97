"""What the clean texts of a partition are like: lengths, languages, dirt, repeats, rejects."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, get_args

import numpy as np

from pipeline.length_histogram import LengthHistogram
from schemas.profiles import LanguageStatistics, TextStatistics
from schemas.task import CleanStep

if TYPE_CHECKING:
    from pipeline.flow import Prepared
    from pipeline.rows import Rejected
    from pipeline.window import Windows

_STEPS = frozenset(get_args(CleanStep))
_HASH_DIGITS = 16  # of the text hash, eight bytes: among ten million texts none meet by chance


class TextProfile:
    """Counts over texts as they come: histograms, counters, and eight bytes for each text."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._chars, self._tokens, self._windows = (LengthHistogram() for _ in range(3))
        self._truncated = 0
        # Of texts, tokens and unknown tokens, by language.
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("texts", "tokens", "unknown", "cleaned", "rejected")
        }

    def add(self, prepared: Prepared, windows: Windows | None = None, unknown: int = 0) -> None:
        """Takes in a text; `unknown` is the number of unknown tokens in its windows."""
        lang = prepared.lang
        self._hashes.append(int(prepared.text_hash[:_HASH_DIGITS], 16))
        self._chars.add(sum(map(len, prepared.texts)))
        self._counts["texts"][lang] += 1
        self._counts["cleaned"].update(_STEPS.intersection(prepared.flags))
        self._truncated += prepared.truncated or (windows is not None and windows.truncated)
        if windows is not None:
            tokens = sum(window.n_tokens for window in windows.windows)
            self._tokens.add(tokens)
            self._windows.add(len(windows.windows))
            self._counts["tokens"][lang] += tokens
            self._counts["unknown"][lang] += unknown

    def reject(self, rejected: Rejected) -> None:
        """Takes in a row without a text to profile."""
        self._counts["rejected"][rejected.reason.value] += 1

    def merge(self, other: TextProfile) -> None:
        """Takes in all that another profile has."""
        self._hashes.extend(other._hashes)
        self._chars.merge(other._chars)
        self._tokens.merge(other._tokens)
        self._windows.merge(other._windows)
        self._truncated += other._truncated
        for name, counts in self._counts.items():
            counts.update(other._counts[name])

    def document(self) -> TextStatistics:
        """The numbers, to keep and to show."""
        tokens = self._tokens.distribution()
        by_lang = {name: self._counts[name] for name in ("texts", "tokens", "unknown")}
        return TextStatistics(
            texts=len(self._hashes),
            distinct=len(np.unique(np.frombuffer(self._hashes, np.uint64))),
            truncated=self._truncated,
            chars=self._chars.distribution(),
            tokenized=tokens.count,
            tokens=tokens,
            windows=self._windows.distribution(),
            languages={
                lang: LanguageStatistics(**{name: of[lang] for name, of in by_lang.items()})
                for lang in sorted(by_lang["texts"])
            },
            cleaned=dict(sorted(self._counts["cleaned"].items())),
            rejected=dict(sorted(self._counts["rejected"].items())),
        )


def count_unknown(windows: Windows, unk_id: int | None) -> int:
    """How many tokens of a record's windows the vocabulary does not know."""
    if unk_id is None:
        return 0
    return sum(window.input_ids.count(unk_id) for window in windows.windows)
