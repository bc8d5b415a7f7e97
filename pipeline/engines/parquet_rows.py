"""Rows of Parquet files, in bounded memory; damage becomes an error that names the file."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import DataContractError
from schemas.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_BATCH_ROWS = 1024
_MAX_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
# A row group over this many bytes is costly to decode once more for each of its shards.
_LARGE_GROUP_BYTES = 32 << 20
_SHOWN_VALUE_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class FlawedRow:
    """A row that has no Python form, with what it has; bad bytes are written out in hex.

    Of one that is too large `values` leaves out the long ones; `sha256` and `size` are of the
    whole row as Arrow holds it.
    """

    values: dict[str, Any]
    reason: Reason
    detail: str
    sha256: str | None = None
    size: int | None = None


def column_names(path: Path, *, name: str) -> tuple[str, ...]:
    """Column names of a Parquet file.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(name), _open(path) as file:
        return tuple(file.schema_arrow.names)


def parquet_rows(
    path: Path, *, name: str, max_bytes: int, start: int = 0, stop: int | None = None
) -> Iterator[dict[str, Any] | FlawedRow]:
    """Rows `start` to `stop` (all by default) as dicts, with types as the file declares them.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(name), _open(path) as file:
        groups, skip = _groups_from(file, start)
        left = (file.metadata.num_rows if stop is None else stop) - start
        batches = file.iter_batches(batch_size=_batch_rows(file), row_groups=groups)
        for batch in batches:
            wanted = batch.slice(min(skip, batch.num_rows), left)
            skip -= min(skip, batch.num_rows)
            left -= wanted.num_rows
            yield from _decoded(_without_dictionaries(wanted), max_bytes)
            if left <= 0:
                return


def has_large_groups(path: Path, *, name: str, rows_per_shard: int) -> bool:
    """Whether shards of the file would decode the same bytes again and again.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(name), _open(path) as file:
        groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    return any(
        group.num_rows > rows_per_shard and group.total_byte_size > _LARGE_GROUP_BYTES
        for group in groups
    )


def regroup(path: Path, target: Path, *, name: str, rows_per_group: int) -> None:
    """Writes the rows of a Parquet file in row groups of another size.

    Raises:
        DataContractError: the file is damaged or is not Parquet.
    """
    with _damage_named(name), _open(path) as file:
        batch_rows = min(_batch_rows(file), rows_per_group)
        with pq.ParquetWriter(target, file.schema_arrow, compression="lz4") as writer:
            held: list[pa.RecordBatch] = []
            for batch in file.iter_batches(batch_size=batch_rows):
                held.append(batch)
                rows = sum(part.num_rows for part in held)
                if rows >= rows_per_group:
                    table = pa.Table.from_batches(held)
                    writer.write_table(table.slice(0, rows_per_group))
                    held = table.slice(rows_per_group).to_batches()
            if held:
                writer.write_table(pa.Table.from_batches(held))


def _open(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES)


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataContractError(f"{name} does not exist any more; run again") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataContractError(
            f"{name}: not readable as Parquet: corrupted or cut off; ask its producer for it again"
        ) from error


def _batch_rows(file: pq.ParquetFile) -> int:
    """Rows a batch, so that one of long texts is not larger than one of short ones."""
    meta = file.metadata
    total = sum(meta.row_group(index).total_byte_size for index in range(meta.num_row_groups))
    bytes_per_row = max(1, total // max(1, meta.num_rows))
    return int(max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_BYTES // bytes_per_row)))


def _groups_from(file: pq.ParquetFile, start: int) -> tuple[list[int], int]:
    """Row groups from the one that holds row `start`, and how many of its rows come before."""
    skip = start
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if skip < rows:
            return list(range(group, file.num_row_groups)), skip
        skip -= rows
    return [], 0


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain values: a dictionary counts as part of every row that it serves."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _decoded(batch: pa.RecordBatch, max_bytes: int) -> Iterator[dict[str, Any] | FlawedRow]:
    if batch.nbytes <= max_bytes:
        try:
            yield from batch.to_pylist()
            return
        except (ValueError, OverflowError):  # of one row, but Arrow tells only of the batch
            pass
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        yield _too_large(row) if row.nbytes > max_bytes else _decoded_row(row)


def _decoded_row(row: pa.RecordBatch) -> dict[str, Any] | FlawedRow:
    values: dict[str, Any] = {}
    flaw: tuple[Reason, str] | None = None
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = column[0].as_py()
        except UnicodeDecodeError:
            flaw = flaw or (Reason.INVALID_ENCODING, f"column {name!r} is not UTF-8")
            values[name] = _escaped(column)
        except (
            ValueError,
            OverflowError,
        ):  # a time before year 1 or after 9999, or finer than a microsecond
            flaw = flaw or (Reason.VALUE_OUT_OF_RANGE, f"column {name!r}: got {column.type}")
            values[name] = f"({column.type} that Python cannot hold)"
    return FlawedRow(values, *flaw) if flaw else values


def _escaped(column: pa.Array) -> str:
    """The only value of a column that cannot be decoded, its bad bytes written out in hex."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return "(nested value with bytes that are not UTF-8)"
    raw: bytes = column.cast(pa.large_binary())[0].as_py()
    return raw.decode("utf-8", errors="backslashreplace")


def _too_large(row: pa.RecordBatch) -> FlawedRow:
    short = [
        name
        for name, column in zip(row.schema.names, row.columns, strict=True)
        if column.nbytes <= _SHOWN_VALUE_BYTES
    ]
    decoded = _decoded_row(row.select(short))
    return FlawedRow(
        decoded.values if isinstance(decoded, FlawedRow) else decoded,
        Reason.RECORD_TOO_LARGE,
        "more bytes than data.max_record_bytes",
        hashlib.sha256(row.serialize()).hexdigest(),
        row.nbytes,
    )
