"""What a partition looked like, in numbers: later nights are compared with it, pages show it."""

from __future__ import annotations

from pydantic import Field

from schemas.manifest import Count, Document
from schemas.section import Fraction


class Distribution(Document):
    """How long things are.

    Median and 95th percentile are exact below 64 and at most 3 % too low beyond. `bars` are
    `(from, count)`, each as wide as half of a doubling: from 64 to 95, from 96 to 127.
    """

    count: Count = 0
    mean: float = 0.0
    smallest: Count = 0
    median: Count = 0
    p95: Count = 0
    largest: Count = 0
    bars: tuple[tuple[int, int], ...] = ()


class LanguageStatistics(Document):
    """The texts of one language; tokens are of those texts that were tokenized."""

    texts: Count = 0
    tokens: Count = 0
    unknown: Count = 0


class TextStatistics(Document):
    """The clean texts of a partition, or of a labelled set.

    `tokens`, `windows` and `unknown` are of the `tokenized` texts: all, a sample, or none where no
    tokenizer was at hand. Tokens are counted as the model reads them, control tokens and the
    overlap of windows included. `cleaned` counts texts by the step that changed something.
    """

    texts: Count = 0
    distinct: Count = 0
    truncated: Count = 0
    chars: Distribution = Distribution()
    tokenized: Count = 0
    tokens: Distribution = Distribution()
    windows: Distribution = Distribution()
    languages: dict[str, LanguageStatistics] = Field(default_factory=dict)
    cleaned: dict[str, int] = Field(default_factory=dict)
    rejected: dict[str, int] = Field(default_factory=dict)

    @property
    def unknown_share(self) -> float | None:
        """Share of unknown tokens, None where nothing was tokenized."""
        tokens = sum(language.tokens for language in self.languages.values())
        unknown = sum(language.unknown for language in self.languages.values())
        return unknown / tokens if tokens else None


class PartitionStatistics(Document):
    """One validated date: `null_share` is by column, of the rows that could be read."""

    task: str
    date: str
    contract_version: str
    rows: Count
    rejected: Count
    null_share: dict[str, Fraction] = Field(default_factory=dict)
    text: TextStatistics = TextStatistics()
