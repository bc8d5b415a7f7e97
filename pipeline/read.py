"""Rows of a shard: each comes out as it was read, or rejected with what was wrong with it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pipeline.engines.parquet_rows import UndecodableRow, parquet_rows
from pipeline.rows import RawRow, Rejected
from pipeline.split import Piece, split_csv, split_lines
from schemas.errors import DataContractError
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    from schemas.manifest import FileFormat, Shard

DELIMITERS: Mapping[FileFormat, bytes] = {"csv": b",", "tsv": b"\t"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the bytes of a record are not a row."""

    reason: Reason
    detail: str


Parse = Callable[[bytes], Mapping[str, Any] | Trouble]


def read_shard(shard: Shard) -> Iterator[RawRow | Rejected]:
    """Exactly `shard.rows_to_do` items in the order of the file, numbered from `shard.first_row`.

    Raises:
        DataContractError: the file is not what it was when it was surveyed.
    """
    repeated: dict[int, tuple[str, ...]] = {}
    for column, rows in shard.repeats.items():
        for row in rows:
            repeated[row] = (*repeated.get(row, ()), column)
    only = None if shard.only_rows is None else frozenset(shard.only_rows)
    count = 0
    for item in _items(shard):
        count += 1
        if only is not None and item.source_row not in only:
            continue
        if isinstance(item, RawRow) and item.source_row in repeated:
            yield replace(item, repeated=repeated[item.source_row])
        else:
            yield item
    if count != shard.rows:
        raise _changed(shard, f"{shard.rows} rows expected, got {count}")


def text_rows(
    pieces: Iterable[Piece], parse: Parse, *, name: str, first_row: int = 0
) -> Iterator[tuple[Piece, RawRow | Rejected]]:
    """Each record of a text file as a row, beside the piece of the file that it is."""
    for row_number, piece in enumerate(pieces, first_row):
        values = _UNCLOSED if piece.unclosed else parse(piece.raw)
        if isinstance(values, Trouble):
            yield piece, _rejected(values, name=name, row=row_number, raw=piece.raw)
        else:
            yield piece, RawRow(name, row_number, values, piece.raw)


def numbered_parquet_rows(
    path: Path, *, name: str, start: int = 0, stop: int | None = None
) -> Iterator[RawRow | Rejected]:
    """Rows of a Parquet file; their raw bytes are the row as canonical JSON.

    Raises:
        DataContractError: the file is damaged.
    """
    for row_number, row in enumerate(parquet_rows(path, start=start, stop=stop), start):
        if isinstance(row, UndecodableRow):
            trouble = Trouble(Reason.INVALID_ENCODING, f"column {row.column!r} is not UTF-8")
            yield _rejected(trouble, name=name, row=row_number, raw=_json_bytes(row.values))
        else:
            yield RawRow(name, row_number, row, _json_bytes(row))


def read_header(piece: Piece | None, delimiter: bytes, *, name: str) -> tuple[str, ...]:
    """Column names from the first record of a CSV file.

    Raises:
        DataContractError: there is none, or it cannot be read.
    """
    fields = Trouble(Reason.MALFORMED_ROW, "no header line")
    found: list[str] | Trouble = fields
    if piece is not None:
        found = _UNCLOSED if piece.unclosed else _fields(piece.raw, delimiter.decode())
    if isinstance(found, Trouble):
        raise DataContractError(f"{name}: header cannot be read: {found.detail}; mend the file")
    return tuple(field.strip() for field in found)


def csv_parser(header: tuple[str, ...], delimiter: bytes) -> Parse:
    """A parser of one CSV record into strings by column."""
    separator = delimiter.decode()

    def parse(raw: bytes) -> Mapping[str, Any] | Trouble:
        fields = _fields(raw, separator)
        if isinstance(fields, Trouble):
            return fields
        if len(fields) != len(header):
            return Trouble(
                Reason.MALFORMED_ROW, f"got {len(fields)} fields, expected {len(header)}"
            )
        return dict(zip(header, fields, strict=True))

    return parse


def parse_json(raw: bytes) -> Mapping[str, Any] | Trouble:
    """The JSON object of one JSONL record."""
    text = _decode(raw)
    if isinstance(text, Trouble):
        return text
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        return Trouble(Reason.INVALID_JSON, f"{error.msg} at character {error.pos}")
    except (ValueError, RecursionError):  # a number of thousands of digits, or nesting as deep
        return Trouble(Reason.INVALID_JSON, "a number too long or nesting too deep")
    if not isinstance(values, dict):
        return Trouble(Reason.INVALID_JSON, f"expected an object, got {type(values).__name__}")
    if "\\u" in text and _has_lone_surrogate(values):
        return Trouble(Reason.INVALID_ENCODING, "a lone surrogate, half of a character")
    return values


_UNCLOSED = Trouble(Reason.UNCLOSED_QUOTE, "a quote opens and is never closed")


def _items(shard: Shard) -> Iterator[RawRow | Rejected]:
    path = Path(shard.path)
    if shard.format == "parquet":
        return numbered_parquet_rows(path, name=shard.name, start=shard.start, stop=shard.stop)
    return _text_items(path, shard)


def _text_items(path: Path, shard: Shard) -> Iterator[RawRow | Rejected]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise _changed(shard, "it is gone") from None
    with file:
        pieces, parse = _pieces(file, shard)
        stop = shard.start
        rows = text_rows(pieces, parse, name=shard.name, first_row=shard.first_row)
        for piece, item in islice(rows, shard.rows):
            stop = piece.stop
            yield item
    if stop != shard.stop:
        raise _changed(shard, f"its rows end at byte {stop}, expected {shard.stop}")


def _pieces(file: BinaryIO, shard: Shard) -> tuple[Iterator[Piece], Parse]:
    if shard.format == "jsonl":
        file.seek(shard.start)
        return split_lines(file, start=shard.start), parse_json
    delimiter = DELIMITERS[shard.format]
    first = next(split_csv(file, delimiter=delimiter), None)
    parse = csv_parser(read_header(first, delimiter, name=shard.name), delimiter)
    file.seek(shard.start)
    return split_csv(file, delimiter=delimiter, start=shard.start), parse


def _fields(raw: bytes, separator: str) -> list[str] | Trouble:
    text = _decode(raw)
    if isinstance(text, Trouble):
        return text
    if '"' not in text and "\r" not in text:
        return text.split(separator)
    # The module's own limit of 128 Ki characters is one for the whole process; how long a text
    # may be is the contract's to say.
    csv.field_size_limit(sys.maxsize)
    try:
        return next(csv.reader([text], delimiter=separator))
    except csv.Error:
        return Trouble(Reason.MALFORMED_ROW, "a carriage return stands alone outside of quotes")


def _decode(raw: bytes) -> str | Trouble:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        return Trouble(Reason.INVALID_ENCODING, f"byte 0x{byte:02X} at position {error.start}")


def _has_lone_surrogate(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _json_bytes(values: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        values, default=str, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode("utf-8", errors="backslashreplace")


def _rejected(trouble: Trouble, *, name: str, row: int, raw: bytes) -> Rejected:
    return Rejected(None, name, row, Stage.READ, trouble.reason, trouble.detail, raw)


def _changed(shard: Shard, what: str) -> DataContractError:
    return DataContractError(
        f"{shard.name}: changed since it was surveyed: {what}; run again when it is at rest"
    )
