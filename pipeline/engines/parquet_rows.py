"""Rows of Parquet files, in bounded memory; damage becomes an error that names the file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROWS_PER_BATCH = 1024
_BUFFER_BYTES = 1 << 20


def column_names(path: Path) -> tuple[str, ...]:
    """Column names of a Parquet file.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(path), _open(path) as file:
        return tuple(file.schema_arrow.names)


def parquet_rows(path: Path, *, start: int = 0, stop: int | None = None) -> Iterator[Any]:
    """Rows `start` to `stop` (all by default) as dicts, undecodable ones as `UndecodableRow`.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(path), _open(path) as file:
        groups, skip = _groups_from(file, start)
        left = (file.metadata.num_rows if stop is None else stop) - start
        batches = file.iter_batches(batch_size=_ROWS_PER_BATCH, row_groups=groups)
        for batch in batches:
            wanted = batch.slice(min(skip, batch.num_rows), left)
            skip -= min(skip, batch.num_rows)
            left -= wanted.num_rows
            yield from _decoded(wanted)
            if left <= 0:
                return


class UndecodableRow:
    """A row with a string that is not UTF-8; in `values` its bad bytes are written out in hex."""

    def __init__(self, values: dict[str, Any], column: str) -> None:
        self.values = values
        self.column = column


def _open(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataContractError(f"{path} does not exist any more; run again") from None
    except (pa.ArrowException, OSError) as error:
        raise DataContractError(
            f"{path}: not readable as Parquet: corrupted or cut off; ask its producer for it again"
        ) from error


def _groups_from(file: pq.ParquetFile, start: int) -> tuple[list[int], int]:
    """Row groups from the one that holds row `start`, and how many of its rows come before."""
    skip = start
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if skip < rows:
            return list(range(group, file.num_row_groups)), skip
        skip -= rows
    return [], 0


def _decoded(batch: pa.RecordBatch) -> Iterator[Any]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # of one row, but Arrow tells only of the batch
        for index in range(batch.num_rows):
            yield _decoded_row(batch.slice(index, 1))


def _decoded_row(row: pa.RecordBatch) -> Any:
    values: dict[str, Any] = {}
    bad_column = ""
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = column[0].as_py()
        except UnicodeDecodeError:
            bad_column = name
            values[name] = _escaped(column)
    return UndecodableRow(values, bad_column) if bad_column else values


def _escaped(column: pa.Array) -> str:
    """The only value of a column that cannot be decoded, its bad bytes written out in hex."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return "(nested value with bytes that are not UTF-8)"
    raw: bytes = column.cast(pa.large_binary())[0].as_py()
    return raw.decode("utf-8", errors="backslashreplace")
