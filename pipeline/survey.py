"""What a partition consists of: its files, cut into shards, before any row is scored."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from pipeline.engines.parquet_rows import column_names
from pipeline.parse import DELIMITERS, csv_parser, parse_json, require_distinct
from pipeline.read import numbered_parquet_rows, read_header, text_rows
from pipeline.rows import RawRow, Rejected
from pipeline.seen_values import SeenValues
from pipeline.source import Source, sources_at
from pipeline.split import split_csv, split_lines
from pipeline.spool import PlainInput, plain_input
from schemas.errors import ConfigError, DataContractError, did_you_mean
from schemas.manifest import InputFile, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from schemas.home import Home
    from schemas.manifest import FileFormat
    from schemas.task import DataConfig

_BUFFER_BYTES = 1 << 20
_SHOWN_COLUMNS = 20
_SHOWN_COLUMN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Survey:
    """The files of a partition as they were found, and the shards that cover their rows."""

    inputs: tuple[InputFile, ...]
    shards: tuple[Shard, ...]

    @property
    def guesses(self) -> tuple[str, ...]:
        """A sentence on every file whose encoding had to be guessed; a job warns of them."""
        return tuple(
            f"{file.name} is not UTF-8: read as {file.encoding}, which is a guess; "
            f"set data.encoding if it is another"
            for file in self.inputs
            if file.encoding_guessed
        )


def find_inputs(pattern: str, home: Home, *, date: date | None) -> tuple[Source, ...]:
    """Files of a partition, sorted; `pattern` is a file, folder, glob or address, with `{date}`.

    Raises:
        ConfigError: the pattern needs a date and there is none, or its address cannot be used.
        DataContractError: there is no such file.
        TransientError: a storage cannot be reached.
    """
    if "{date}" in pattern and date is None:
        raise ConfigError(f"data {pattern!r} needs a date; give --date YYYY-MM-DD")
    location = pattern.replace("{date}", date.isoformat()) if date else pattern
    found = sources_at(location, home)
    if not found:
        place = location if "://" in location else home.resolve(location)
        raise DataContractError(
            f"no input for date {date or '(none)'}: nothing matches {place}; "
            f"put the files there, or correct data.incoming or data.labelled"
        )
    return found


def survey(
    sources: Iterable[Source],
    *,
    data: DataConfig,
    home: Home,
    rows_per_shard: int,
    spool: Path,
    unique_columns: tuple[str, ...] = (),
) -> Survey:
    """Digest, row count and shards of every file, in one pass over its rows and bounded memory.

    Of the rows of a partition that share an id, or a value of one of `unique_columns`, the first
    wins; the others are named in their shards' `repeats`. Inputs that cannot be read from the
    middle are copied into the folder `spool` as plain UTF-8, named by their content.

    Raises:
        ConfigError: a file's format or encoding cannot be told, or its address cannot be used.
        DataContractError: a file lacks a column or is damaged.
        TransientError: a storage cannot be reached.
    """
    seen = SeenValues((*([data.id_column] if data.id_column else []), *unique_columns))
    inputs: list[InputFile] = []
    shards: list[Shard] = []
    for source in sources:
        plain = plain_input(source, data, spool=spool, rows_per_shard=rows_per_shard)
        found = _File(source, plain, source.name_in(home), source.format(data))
        cuts = _cut(_placed_rows(found, data), seen, rows_per_shard)
        inputs.append(found.described(rows=sum(cut.rows for cut in cuts)))
        shards += [cut.shard(found, data, is_last=cut is cuts[-1]) for cut in cuts]
    return Survey(tuple(inputs), _numbered(shards, seen.repeats()))


@dataclass(frozen=True, slots=True)
class _File:
    """An input while it is surveyed."""

    source: Source
    plain: PlainInput
    name: str
    format: FileFormat

    def described(self, *, rows: int) -> InputFile:
        return InputFile(
            name=self.name,
            format=self.format,
            compression=self.source.compression,
            encoding=self.plain.encoding.name,
            encoding_guessed=self.plain.encoding.guessed,
            bytes=self.plain.size,
            rows=rows,
            sha256=self.plain.sha256,
        )


@dataclass(slots=True)
class _Cut:
    """A shard in the making."""

    start: int
    stop: int
    first_row: int
    rows: int = 0

    def shard(self, file: _File, data: DataConfig, *, is_last: bool) -> Shard:
        return Shard(
            index=0,
            name=file.name,
            path=str(file.plain.path),
            format=file.format,
            start=self.start,
            stop=self.stop,
            first_row=self.first_row,
            rows=self.rows,
            truncated=is_last and file.plain.cut_off and file.format != "parquet",
            max_record_bytes=data.max_record_bytes,
        )


# Where a row begins and ends in its file, and the row.
_Placed = tuple[int, int, RawRow | Rejected]


def _cut(rows: Iterable[_Placed], seen: SeenValues, rows_per_shard: int) -> list[_Cut]:
    cuts: list[_Cut] = []
    for number, (start, stop, item) in enumerate(rows):
        if number % rows_per_shard == 0:
            cuts.append(_Cut(start, stop, number))
        cut = cuts[-1]
        cut.stop = stop
        cut.rows += 1
        seen.add(item)
    return cuts


def _numbered(shards: Sequence[Shard], repeats: Mapping[str, Sequence[int]]) -> tuple[Shard, ...]:
    """The shards with their index, and with their rows among `repeats`, which count on."""
    numbered: list[Shard] = []
    before = 0  # rows of the partition ahead of the shard
    for index, shard in enumerate(shards):
        mine: dict[str, tuple[int, ...]] = {}
        for column, rows in repeats.items():
            found = rows[bisect_left(rows, before) : bisect_left(rows, before + shard.rows)]
            if found:
                mine[column] = tuple(row - before + shard.first_row for row in found)
        numbered.append(shard.model_copy(update={"index": index, "repeats": mine}))
        before += shard.rows
    return tuple(numbered)


def _placed_rows(file: _File, data: DataConfig) -> Iterator[_Placed]:
    if file.format == "parquet":
        yield from _parquet_rows(file, data)
        return
    with file.plain.path.open("rb", buffering=_BUFFER_BYTES) as plain:
        yield from (_json_rows if file.format == "jsonl" else _csv_rows)(plain, file, data)


def _csv_rows(plain: BinaryIO, file: _File, data: DataConfig) -> Iterator[_Placed]:
    delimiter = DELIMITERS[file.format]
    pieces = split_csv(
        plain, delimiter=delimiter, max_bytes=data.max_record_bytes, cut_off=file.plain.cut_off
    )
    first = next(pieces, None)
    if first is None:  # an empty file has no rows; whether it may is the contract's min_rows
        return
    header = read_header(first, delimiter, name=file.name)
    _require_columns(header, data, name=file.name)
    for piece, item in text_rows(pieces, csv_parser(header, delimiter), name=file.name):
        yield piece.start, piece.stop, item


def _json_rows(plain: BinaryIO, file: _File, data: DataConfig) -> Iterator[_Placed]:
    """JSONL has no header: a column is missing if no row of the file has it."""
    absent = set(_needed_columns(data))
    found: dict[str, None] = {}
    pieces = split_lines(plain, max_bytes=data.max_record_bytes, cut_off=file.plain.cut_off)
    for piece, item in text_rows(pieces, parse_json, name=file.name):
        if absent and isinstance(item, RawRow):
            absent -= item.values.keys()
            if len(found) < _SHOWN_COLUMNS:
                found.update(dict.fromkeys(item.values))
        yield piece.start, piece.stop, item
    if absent and found:
        present = [column for column in _needed_columns(data) if column not in absent]
        _require_columns(list(dict.fromkeys([*found, *present])), data, name=file.name)


def _parquet_rows(file: _File, data: DataConfig) -> Iterator[_Placed]:
    # All pages are decoded here, so that damage shows before the first row is scored.
    path, name = file.plain.path, file.name
    columns = column_names(path, name=name)
    require_distinct(columns, name=name)
    _require_columns(columns, data, name=name)
    rows = numbered_parquet_rows(path, name=name, max_bytes=data.max_record_bytes)
    for number, item in enumerate(rows):
        yield number, number + 1, item


def _needed_columns(data: DataConfig) -> tuple[str, ...]:
    return (*([data.id_column] if data.id_column else []), *data.text_columns)


def _require_columns(found: Sequence[str], data: DataConfig, *, name: str) -> None:
    for column in _needed_columns(data):
        if column in found:
            continue
        shown = ", ".join(known[:_SHOWN_COLUMN_CHARS] for known in found[:_SHOWN_COLUMNS])
        raise DataContractError(
            f"{name}: column {column!r} is missing{did_you_mean(column, found)}; columns found: "
            f"{shown}; correct the file, or data.id_column and data.text_columns"
        )
