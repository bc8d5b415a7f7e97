"""Labelled files into training examples, through the same steps that score at night."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.bundle import text_flow
from pipeline.model.labelled import Example, Labeller, split_of
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.survey import Survey, find_inputs, survey
from schemas.errors import ConfigError, DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.flow import Prepared, TextFlow
    from schemas.home import Home
    from schemas.task import TaskConfig

_ROWS_PER_SHARD = 100_000


@dataclass
class LabelledData:
    """Examples with their splits, and what was left out."""

    examples: list[Example]
    digest: str
    cleaner_version: str
    rejected: list[Rejected] = field(default_factory=list)
    unlabelled: int = 0

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
        DataContractError: unknown labels, no labels at all, or more rejected rows than the
            contract allows.
    """
    flow = text_flow(task, tokenizer)
    data = LabelledData([], data_digest(labelled, test), flow.cleaner.version)
    labeller = Labeller(task.heads)
    held_out = {
        example.text_hash
        for example in (_examples(task, test, flow, labeller, data) if test else ())
    }
    # A text that is also in the test files never trains: it would make the test look too good.
    for example in _examples(task, labelled, flow, labeller, data, has_test=test is not None):
        if example.text_hash not in held_out:
            data.examples.append(example)
    labeller.check()
    _check_share(task, labelled, data)
    return data


def _examples(
    task: TaskConfig,
    source: Survey,
    flow: TextFlow,
    labeller: Labeller,
    data: LabelledData,
    *,
    has_test: bool | None = None,
) -> Iterator[Example]:
    """Examples of one survey; `has_test` None means that the survey is the test set itself."""
    for item in _prepared(task, source, flow):
        if isinstance(item, Rejected):
            data.rejected.append(item)
            continue
        targets = labeller.targets(item)
        if all(target is None for target in targets.values()):
            data.unlabelled += 1
            continue
        example = Example(
            record_id=item.record.record_id,
            text_hash=item.text_hash,
            split=(
                "test" if has_test is None else split_of(item.texts, task.train, has_test=has_test)
            ),
            lang=item.lang,
            texts=item.texts,
            windows=flow.windows(item).windows,
            targets=targets,
        )
        if has_test is None:
            data.examples.append(example)
        yield example


def _prepared(task: TaskConfig, source: Survey, flow: TextFlow) -> Iterator[Prepared | Rejected]:
    for shard in source.shards:
        yield from flow.prepare(read_shard(shard))


def _survey(task: TaskConfig, pattern: str, home: Home, spool: Path) -> Survey:
    paths: tuple[Path, ...] = find_inputs(pattern, home, date=None)
    return survey(
        paths,
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
