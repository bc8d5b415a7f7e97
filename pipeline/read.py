"""Rows of a shard: each comes out as it was read, or rejected with what was wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pipeline.engines.parquet_rows import FlawedRow, parquet_rows
from pipeline.parse import DELIMITERS, Trouble, csv_parser, header_names, parse_json
from pipeline.rows import RawRow, Rejected
from pipeline.split import HEAD_BYTES, Flaw, Piece, split_csv, split_lines
from schemas.errors import DataContractError
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.parse import Parse
    from schemas.manifest import Shard


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
        values = _FLAWS[piece.flaw] if piece.flaw else parse(piece.raw)
        if isinstance(values, Trouble):
            yield piece, _rejected(values, piece, name=name, row=row_number)
        else:
            yield piece, RawRow(name, row_number, values, piece.raw)


def numbered_parquet_rows(
    path: Path, *, name: str, max_bytes: int, start: int = 0, stop: int | None = None
) -> Iterator[RawRow | Rejected]:
    """Rows of a Parquet file; their raw bytes are the row as canonical JSON.

    Raises:
        DataContractError: the file is damaged.
    """
    rows = parquet_rows(path, name=name, max_bytes=max_bytes, start=start, stop=stop)
    for row_number, row in enumerate(rows, start):
        if isinstance(row, FlawedRow):
            yield Rejected(
                None,
                name,
                row_number,
                Stage.READ,
                row.reason,
                row.detail,
                _json_bytes(row.values)[:HEAD_BYTES],
                row.sha256,
                row.size,
            )
        else:
            yield RawRow(name, row_number, row, _json_bytes(row))


def read_header(first: Piece, delimiter: bytes, *, name: str) -> tuple[str, ...]:
    """Column names from the first record of a CSV file.

    Raises:
        DataContractError: they cannot be read, or two columns share a name.
    """
    if first.flaw:
        raise DataContractError(
            f"{name}: header cannot be read: {_FLAWS[first.flaw].detail}; mend the file"
        )
    return header_names(first.raw, delimiter, name=name)


_FLAWS = {
    Flaw.UNCLOSED: Trouble(Reason.UNCLOSED_QUOTE, "a quote opens and is never closed"),
    Flaw.TOO_LARGE: Trouble(Reason.RECORD_TOO_LARGE, "more bytes than data.max_record_bytes"),
    Flaw.CUT_OFF: Trouble(
        Reason.TRUNCATED_FILE, "the file is cut off or damaged here; what followed is lost"
    ),
}


def _items(shard: Shard) -> Iterator[RawRow | Rejected]:
    path = Path(shard.path)
    if shard.format == "parquet":
        return numbered_parquet_rows(
            path,
            name=shard.name,
            max_bytes=shard.max_record_bytes,
            start=shard.start,
            stop=shard.stop,
        )
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
    max_bytes, cut_off, start = shard.max_record_bytes, shard.truncated, shard.start
    if shard.format == "jsonl":
        lines = split_lines(file, start=start, max_bytes=max_bytes, cut_off=cut_off)
        return lines, parse_json
    delimiter = DELIMITERS[shard.format]
    split = partial(split_csv, file, delimiter=delimiter, max_bytes=max_bytes, cut_off=cut_off)
    first = next(split(), None)
    if first is None:
        raise _changed(shard, "it is empty")
    parse = csv_parser(read_header(first, delimiter, name=shard.name), delimiter)
    return split(start=start), parse


def _json_bytes(values: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        values, default=str, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode("utf-8", errors="backslashreplace")


def _rejected(trouble: Trouble, piece: Piece, *, name: str, row: int) -> Rejected:
    return Rejected(
        None,
        name,
        row,
        Stage.READ,
        trouble.reason,
        trouble.detail,
        piece.raw,
        piece.sha256,
        piece.size,
    )


def _changed(shard: Shard, what: str) -> DataContractError:
    return DataContractError(
        f"{shard.name}: changed since it was surveyed: {what}; run again when it is at rest"
    )
