"""Quarantine as it lies on disk, read in bounded memory: its rows, counts and examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.excerpt import printable
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_ROWS_PER_BATCH = 256  # each may hold quarantine.max_raw_bytes
_MAX_NAME_CHARS = 80
WITHOUT_RAW = ("record_id", "source_file", "source_row", "stage", "reason", "detail")

# One row of the quarantine schema, by column.
QuarantinedRow = dict[str, Any]


def quarantined_rows(
    files: Iterable[Path], *, columns: tuple[str, ...] | None = None
) -> Iterator[QuarantinedRow]:
    """Rows of quarantine files in their order; only `columns`, where they are given.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    wanted = None if columns is None else list(columns)
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=wanted):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise ArtifactError(f"quarantine file {path} is missing or damaged") from error


def row_name(row: Mapping[str, Any]) -> str:
    """What people call a row: its id, or `file:row` where it has none."""
    name = row["record_id"] or f"{row['source_file']}:{row['source_row']}"
    return printable(name, max_chars=_MAX_NAME_CHARS)


@dataclass
class Tally:
    """Rows counted by a key, and the first few of each."""

    max_samples: int
    rows: Counter[tuple[str, ...]] = field(default_factory=Counter)
    samples: dict[tuple[str, ...], list[QuarantinedRow]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, key: tuple[str, ...], row: QuarantinedRow) -> None:
        """Counts a row under a key."""
        self.rows[key] += 1
        if len(self.samples[key]) < self.max_samples:
            self.samples[key].append(row)

    def such_as(self, key: tuple[str, ...]) -> str:
        """A suffix ` (such as …)` that names the rows kept of a key; empty where there are none."""
        names = ", ".join(row_name(row) for row in self.samples.get(key, ()))
        return f" (such as {names})" if names else ""
