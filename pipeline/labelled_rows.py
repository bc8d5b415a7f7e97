"""Labelled files into training examples, through the same steps that score at night."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.bundle import text_flow
from pipeline.cells import cell_text, moment_in
from pipeline.leakage import Conflicts, Leakage, conflicting_labels, without_leaks
from pipeline.model.labelled import Example, Labeller, Split, Target, split_of
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.survey import Survey, find_inputs, survey
from pipeline.text_profile import TextProfile, count_unknown
from schemas.errors import ConfigError, DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.flow import Prepared, TextFlow
    from schemas.home import Home
    from schemas.task import TaskConfig

_ROWS_PER_SHARD = 100_000
log = logging.getLogger(__name__)


@dataclass
class LabelledData:
    """Examples with their splits, what was left out of them, and which contradict each other."""

    examples: list[Example]
    digest: str
    cleaner_version: str
    rejected: list[Rejected] = field(default_factory=list)
    unlabelled: int = 0
    leakage: Leakage = field(default_factory=Leakage)
    conflicts: Conflicts = field(default_factory=Conflicts)
    profile: TextProfile = field(default_factory=TextProfile)

    @property
    def rows(self) -> dict[str, int]:
        """Examples by split."""
        counted = Counter(example.split for example in self.examples)
        return {split: counted[split] for split in ("train", "valid", "test")}


def survey_labelled(task: TaskConfig, home: Home, *, spool: Path) -> tuple[Survey, Survey | None]:
    """What is there to learn from: the labelled files, and the test files where there are some.

    Raises:
        ConfigError: the task names no labelled data.
        DataContractError: files are missing or lack a column.
    """
    if task.data.labelled is None:
        raise ConfigError(
            f"task {task.name!r} names no labelled data; set data.labelled to files with the "
            f"columns {[head.column for head in task.heads.values()]}"
        )
    return _survey(task, task.data.labelled, home, spool), (
        _survey(task, task.data.test, home, spool) if task.data.test else None
    )


def data_digest(labelled: Survey, test: Survey | None) -> str:
    """Hash over the bytes of all files learned from."""
    files = [file.sha256 for file in labelled.inputs]
    return digest_of([files, [file.sha256 for file in test.inputs] if test else []])


def load_labelled(
    task: TaskConfig, labelled: Survey, test: Survey | None, *, tokenizer: BackboneTokenizer
) -> LabelledData:
    """Examples of the labelled and test files; rows without any label are counted, not used.

    Raises:
        DataContractError: unknown labels, no labels at all, more rejected rows than the contract
            allows, or nothing to train on that is not held out too.
    """
    flow = text_flow(task, tokenizer)
    data = LabelledData([], data_digest(labelled, test), flow.cleaner.version)
    reading = _Reading(
        flow, data, Labeller(task.heads), tokenizer.unk_id, time_column=task.data.time_column
    )
    if test is not None:
        data.examples += reading.examples(test, split_for=lambda _: "test")
    split_for = partial(split_of, config=task.train, has_test=test is not None)
    data.examples += reading.examples(labelled, split_for=split_for)
    reading.labeller.check()
    _check_share(task, labelled, data)
    _note_days(task, data.examples)
    data.conflicts = conflicting_labels(data.examples, task.heads)
    data.examples, data.leakage = without_leaks(
        data.examples, similarity=task.train.near_duplicate_similarity
    )
    if not data.rows["train"]:
        raise DataContractError(
            f"no record is left to train on; left out were {data.leakage}; "
            f"add labelled rows whose texts are not among the held-out ones"
        )
    return data


@dataclass(frozen=True)
class _Reading:
    """Labelled files on their way into examples, and where all that is no example is counted."""

    flow: TextFlow
    data: LabelledData
    labeller: Labeller
    unk_id: int | None
    time_column: str | None = None

    def examples(
        self, source: Survey, *, split_for: Callable[[tuple[str, ...]], Split]
    ) -> Iterator[Example]:
        """Examples of the files of one survey, each in the split that its texts fall into."""
        for shard in source.shards:
            for item in self.flow.prepare(read_shard(shard)):
                if isinstance(item, Rejected):
                    self.data.rejected.append(item)
                    self.data.profile.reject(item)
                    continue
                targets = self.labeller.targets(item)
                if all(target is None for target in targets.values()):
                    self.data.unlabelled += 1
                    continue
                yield self._example(item, targets, split_for(item.texts))

    def _example(self, item: Prepared, targets: Mapping[str, Target], split: Split) -> Example:
        windows = self.flow.windows(item)
        self.data.profile.add(item, windows, count_unknown(windows, self.unk_id))
        return Example(
            record_id=item.record.record_id,
            text_hash=item.text_hash,
            split=split,
            lang=item.lang,
            texts=item.texts,
            windows=windows.windows,
            targets=targets,
            day=_day(item.record.values, self.time_column),
        )


def _day(values: Mapping[str, Any], column: str | None) -> dt.date | None:
    """The day in UTC that a row is from; None where no column or no time in it says so."""
    text = None if column is None else cell_text(values.get(column))
    moment = None if text is None else moment_in(text)
    return None if moment is None else moment.date()


def _note_days(task: TaskConfig, examples: list[Example]) -> None:
    """Tells of records without a time, since quality by time knows nothing of them."""
    missing = sum(example.day is None for example in examples)
    if task.data.time_column is not None and missing:
        log.warning(
            "%d of %d labelled records have no ISO 8601 time in column %r (data.time_column)",
            missing, len(examples), task.data.time_column,
        )  # fmt: skip


def _survey(task: TaskConfig, pattern: str, home: Home, spool: Path) -> Survey:
    return survey(
        find_inputs(pattern, home, date=None),
        data=task.data,
        home=home,
        rows_per_shard=_ROWS_PER_SHARD,
        spool=spool,
        unique_columns=task.contract.unique_columns,
    )


def _check_share(task: TaskConfig, labelled: Survey, data: LabelledData) -> None:
    rows = sum(file.rows for file in labelled.inputs)
    limit = task.contract.max_reject_fraction
    if rows and len(data.rejected) / rows > limit:
        reasons = Counter(row.reason.value for row in data.rejected)
        counts = ", ".join(f"{n} {name}" for name, n in sorted(reasons.items()))
        raise DataContractError(
            f"{len(data.rejected)} of {rows} labelled rows rejected (allowed {limit:.1%}): {counts}"
        )
    if not data.examples:
        columns = [head.column for head in task.heads.values()]
        raise DataContractError(
            f"none of {rows} labelled rows has a label in {columns}; "
            f"check heads.*.column in the task file"
        )
