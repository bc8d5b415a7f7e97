"""What a night will take, by what this host has measured and by what its texts look like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pipeline.flow import Prepared
from pipeline.read import read_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.flow import TextFlow
    from schemas.manifest import Shard
    from schemas.profiles import PartitionStatistics

# What a worker keeps of the bare engine's speed: the rest is reading, cleaning, answers, writing.
ENGINE_SHARE = 0.93
_SAMPLED_SHARDS = 4
_SAMPLED_ROWS = 64  # of each
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Texts:
    """How many rows there are, and how long: tokens of a row and of a window, on average."""

    rows: int
    tokens_per_row: float
    tokens_per_window: float
    source: str


@dataclass(frozen=True)
class Forecast:
    """The time and price of scoring `texts` by `workers` of one machine."""

    texts: Texts
    workers: int
    engine_tokens_per_s: float
    fixed_s: float
    price_per_hour: float | None = None

    @property
    def rows_per_s(self) -> float:
        """Rows a second of all workers together, once they are at work."""
        tokens_per_s = ENGINE_SHARE * self.engine_tokens_per_s * self.workers
        return tokens_per_s / max(self.texts.tokens_per_row, 1.0)

    @property
    def hours(self) -> float:
        """From command to published manifest."""
        return (self.fixed_s + self.texts.rows / self.rows_per_s) / _SECONDS_PER_HOUR

    @property
    def cost(self) -> float | None:
        """Price of the night; None where the machine has no price."""
        return None if self.price_per_hour is None else self.hours * self.price_per_hour


def profiled_texts(profile: PartitionStatistics) -> Texts | None:
    """What `nightmill validate` has seen of a date; None where it had no tokenizer."""
    text = profile.text
    if not text.tokenized:
        return None
    return Texts(
        rows=profile.rows,
        tokens_per_row=text.tokens.mean,
        tokens_per_window=text.tokens.mean / text.windows.mean,
        source=f"profile of {profile.date}, {text.tokenized} texts",
    )


def sampled_texts(flow: TextFlow, shards: Sequence[Shard]) -> Texts:
    """What a sample of a partition's rows looks like, from shards all over it."""
    step = -(-len(shards) // _SAMPLED_SHARDS)
    sample = [row for shard in shards[::step] for row in islice(read_shard(shard), _SAMPLED_ROWS)]
    items = [flow.windows(item) for item in flow.prepare(sample) if isinstance(item, Prepared)]
    lengths = [window.n_tokens for item in items for window in item.windows]
    return Texts(
        rows=sum(shard.rows for shard in shards),
        tokens_per_row=sum(lengths) / max(len(items), 1),
        tokens_per_window=sum(lengths) / max(len(lengths), 1),
        source=f"sample of {len(items)} rows",
    )
