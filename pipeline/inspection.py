"""A partition read through once: what its rows are like, what its texts are like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import tee
from typing import TYPE_CHECKING, Protocol

from pipeline.partition_profile import PartitionProfile
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.text_profile import TextProfile, count_unknown
from schemas.profiles import PartitionStatistics

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from pipeline.flow import Prepared, TextFlow
    from pipeline.validate import Validator
    from schemas.manifest import Shard
    from schemas.task import TaskConfig

_SAMPLED_TEXTS = 20_000  # tokens are counted in about as many: half a minute, shares within 1 %
_HASH_DIGITS = 8
_ALL_HASHES = 2.0 ** (4 * _HASH_DIGITS)


class Vocabulary(Protocol):
    """What a tokenizer must say for its tokens to be counted."""

    @property
    def unk_id(self) -> int | None:
        """Id of tokens that it does not know, None where there are none such."""


@dataclass(frozen=True)
class Inspection:
    """What was found in a partition."""

    task: TaskConfig
    date: dt.date
    profile: PartitionProfile
    text: TextProfile
    validator: Validator

    def statistics(self) -> PartitionStatistics:
        """The numbers that later nights are compared with."""
        return PartitionStatistics(
            task=self.task.name,
            date=self.date.isoformat(),
            contract_version=self.task.contract_version,
            rows=self.profile.rows,
            rejected=self.profile.rejected,
            null_share=self.profile.null_share,
            text=self.text.document(),
        )


def inspect_partition(
    task: TaskConfig,
    date: dt.date,
    shards: Iterable[Shard],
    flow: TextFlow,
    *,
    vocabulary: Vocabulary | None,
) -> Inspection:
    """Every row through the steps up to language, texts of a sample also into windows.

    Without a vocabulary no tokens are counted.

    Raises:
        DataContractError: a file is not what it was when it was surveyed.
    """
    shards = tuple(shards)
    sampled = _SAMPLED_TEXTS / max(1, sum(shard.rows for shard in shards))
    found = Inspection(task, date, PartitionProfile(task, date), TextProfile(), flow.validator)
    for shard in shards:
        rows, again = tee(read_shard(shard))
        for row, outcome in zip(rows, flow.prepare(again, date=date), strict=True):
            found.profile.add(row, outcome)
            if isinstance(outcome, Rejected):
                found.text.reject(outcome)
            elif vocabulary is not None and _is_sampled(outcome, sampled):
                windows = flow.windows(outcome)
                found.text.add(outcome, windows, count_unknown(windows, vocabulary.unk_id))
            else:
                found.text.add(outcome)
    return found


def _is_sampled(prepared: Prepared, share: float) -> bool:
    """Whether a text is in a sample that is the same on each run."""
    return int(prepared.text_hash[:_HASH_DIGITS], 16) / _ALL_HASHES < share
