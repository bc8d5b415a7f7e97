"""Labelled records: targets by head, and splits that equal texts never straddle."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.model.label_cells import Problem, aspect_pairs, choices, label_list
from pipeline.window import Window
from schemas.errors import DataContractError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pipeline.flow import Prepared
    from pipeline.heads import HeadSlice
    from schemas.task import HeadConfig, TrainConfig

Split = Literal["train", "valid", "test"]
# A label's index, flags of labels or choices of aspects (0 is none), or not known.
Target = int | tuple[int, ...] | None
MISSING = -100  # the index that torch's cross-entropy ignores
OUTSIDE = -101  # none of a `single` head's labels; to all but rules of scope as good as missing
_EXAMPLES = 3


@dataclass(frozen=True)
class Example:
    """One labelled record: its windows, and for each head a target.

    `day` is that of the task's time column, None where nothing is known of it.
    """

    record_id: str
    text_hash: str
    split: Split
    lang: str
    texts: tuple[str, ...]
    windows: tuple[Window, ...]
    targets: Mapping[str, Target]
    day: dt.date | None = None


class Labeller:
    """Reads the labels of records; unknown ones are collected, so that one message names all."""

    def __init__(self, heads: Mapping[str, HeadConfig]) -> None:
        self._heads = heads
        self._problems: dict[tuple[str, Problem], list[str]] = {}

    def targets(self, prepared: Prepared) -> dict[str, Target]:
        """Targets of one record; a head whose column is empty or absent has None.

        A value that means none of a `single` head's labels is OUTSIDE.
        """
        return self.read(prepared.record.values, record_id=prepared.record.record_id)

    def read(self, values: Mapping[str, Any], *, record_id: str) -> dict[str, Target]:
        """Targets of a row of values; `record_id` names it where a label is unknown."""
        return {
            name: self._target(name, head, values.get(head.column), record_id)
            for name, head in self._heads.items()
        }

    def check(self) -> None:
        """Raises what was collected.

        Raises:
            DataContractError: labels or aspects that the task does not have, or an aspect with two
                labels or without one, each with its count and examples.
        """
        if not self._problems:
            return
        problems = [
            f"head {head!r}: {problem} in {len(ids)} records "
            f"(for example {', '.join(ids[:_EXAMPLES])})"
            for (head, problem), ids in sorted(self._problems.items())
        ]
        raise DataContractError(
            "; ".join(problems) + "; add the labels to the task file or correct the data"
        )

    def _target(self, name: str, head: HeadConfig, value: Any, record_id: str) -> Target:
        if head.kind == "multi":
            if value is None:
                return None
            chosen = {self._index(name, label, record_id) for label in label_list(value, head)}
            return tuple(int(index in chosen) for index in range(len(head.labels)))
        if head.kind == "aspect":
            if (pairs := aspect_pairs(value, head)) is None:
                return None
            found, problems = choices(pairs, head)
            for problem in problems:
                self._note(name, problem, record_id)
            return found
        label = "" if value is None else str(value).strip()
        return self._index(name, label, record_id) if label else None

    def _index(self, head: str, label: str, record_id: str) -> int:
        labels, outside = self._heads[head].labels, self._heads[head].outside
        if label in labels:
            return labels.index(label)
        beyond = () if outside is None else outside.labels
        if label in beyond:
            return OUTSIDE
        self._note(head, Problem("unknown label", label, (*labels, *beyond)), record_id)
        return MISSING

    def _note(self, head: str, problem: Problem, record_id: str) -> None:
        self._problems.setdefault((head, problem), []).append(record_id)


def split_of(texts: Iterable[str], config: TrainConfig, *, has_test: bool) -> Split:
    """Split by a hash of the text without case, spaces and punctuation.

    Equal and trivially different texts fall in one split, on every machine, whatever is added to
    the data later. With a test set of its own (`has_test`) nothing is held back for test.
    """
    plain = re.sub(r"[\W_]+", "", " ".join(texts).lower())
    digest = hashlib.sha256(f"{config.seed}:{plain}".encode()).digest()
    position = int.from_bytes(digest[:8]) / 2**64
    test = 0.0 if has_test else config.test_fraction
    if position < test:
        return "test"
    return "valid" if position < test + config.valid_fraction else "train"


def label_matrix(examples: Sequence[Example], head: str, config: HeadConfig) -> npt.NDArray[Any]:
    """Targets of a head: int64 `(N,)` with MISSING, or float32 `(N, L)` with NaN where missing.

    Of an `aspect` head the choices as float32 `(N, A)`, so that NaN can stand for what is missing.
    OUTSIDE is MISSING here: no label is there to be learnt or met.
    """
    return target_matrix([example.targets[head] for example in examples], config)


def label_matrices(
    examples: Sequence[Example], heads: Sequence[HeadSlice]
) -> dict[str, npt.NDArray[Any]]:
    """The `label_matrix` of each head, by its name."""
    return {head.name: label_matrix(examples, head.name, head.config) for head in heads}


def target_matrix(targets: Sequence[Target], config: HeadConfig) -> npt.NDArray[Any]:
    """The same from targets alone."""
    if config.kind == "single":
        indices = [MISSING if target in (None, OUTSIDE) else target for target in targets]
        return np.array(indices, dtype=np.int64)
    width = len(config.aspects or config.labels)
    empty = (float("nan"),) * width
    rows = [empty if target is None else target for target in targets]
    return np.array(rows, dtype=np.float32).reshape(len(rows), width)


def known_rows(target: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Marks `(N,)` the records whose target in a `target_matrix` is known."""
    known = target >= 0 if target.ndim == 1 else np.isfinite(target).all(axis=1)
    return np.asarray(known)


def outside_rows(examples: Sequence[Example], head: str) -> npt.NDArray[np.bool_]:
    """Marks `(N,)` the records that none of a head's labels fits."""
    return np.array([example.targets[head] == OUTSIDE for example in examples], dtype=np.bool_)


_SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("text_hash", pa.string()),
        ("split", pa.string()),
        ("lang", pa.string()),
        ("texts", pa.list_(pa.string())),
        ("input_ids", pa.list_(pa.list_(pa.int32()))),
        ("type_ids", pa.list_(pa.list_(pa.int8()))),
        ("targets", pa.string()),
        ("day", pa.date32()),
    ]
)


def save_examples(examples: Iterable[Example], path: Path) -> None:
    """Writes examples as Parquet, the form in which training workers load them."""
    rows = [
        {
            "record_id": example.record_id,
            "text_hash": example.text_hash,
            "split": example.split,
            "lang": example.lang,
            "texts": list(example.texts),
            "input_ids": [window.input_ids for window in example.windows],
            "type_ids": [window.type_ids for window in example.windows],
            "targets": json.dumps(example.targets, sort_keys=True),
            "day": example.day,
        }
        for example in examples
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), path, compression="zstd")


def load_examples(path: Path) -> list[Example]:
    """Reads what `save_examples` wrote; windows no longer know their place in the text."""
    return [
        Example(
            record_id=row["record_id"],
            text_hash=row["text_hash"],
            split=row["split"],
            lang=row["lang"],
            texts=tuple(row["texts"]),
            windows=tuple(
                Window(tuple(ids), tuple(types), 0, 0)
                for ids, types in zip(row["input_ids"], row["type_ids"], strict=True)
            ),
            targets={
                name: tuple(target) if isinstance(target, list) else target
                for name, target in json.loads(row["targets"]).items()
            },
            day=row.get("day"),  # runs from before it was kept have no such column
        )
        for row in pq.read_table(path).to_pylist()
    ]
