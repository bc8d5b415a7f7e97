"""What a partition consists of: its files, cut into shards, before any row is scored."""

from __future__ import annotations

import glob
import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pipeline.engines.parquet_rows import column_names
from pipeline.read import (
    DELIMITERS,
    csv_parser,
    numbered_parquet_rows,
    parse_json,
    read_header,
    text_rows,
)
from pipeline.rows import RawRow, Rejected
from pipeline.split import split_csv, split_lines
from pipeline.validate import id_text
from schemas.errors import ConfigError, DataContractError, did_you_mean
from schemas.fingerprint import digest_of_file
from schemas.manifest import FileFormat, InputFile, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from schemas.home import Home
    from schemas.task import DataConfig

FORMATS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_BUFFER_BYTES = 1 << 20
_SHOWN_COLUMNS = 20
_SHOWN_COLUMN_CHARS = 40


@dataclass(frozen=True, slots=True)
class Survey:
    """The files of a partition as they were found, and the shards that cover their rows."""

    inputs: tuple[InputFile, ...]
    shards: tuple[Shard, ...]


def find_inputs(pattern: str, home: Home, *, date: date | None) -> tuple[Path, ...]:
    """Files of a partition, sorted; `pattern` is a file, a folder or a glob, with `{date}`.

    Raises:
        ConfigError: the pattern needs a date and there is none, or it is not a local path.
        DataContractError: there is no such file.
    """
    if "://" in pattern:
        raise ConfigError(f"data {pattern!r}: only local paths are read so far; copy the files")
    if "{date}" in pattern and date is None:
        raise ConfigError(f"data {pattern!r} needs a date; give --date YYYY-MM-DD")
    location = pattern.replace("{date}", date.isoformat()) if date else pattern
    found = _files_at(location, home)
    if not found:
        raise DataContractError(
            f"no input for date {date or '(none)'}: nothing matches {home.resolve(location)}; "
            f"put the files there, or correct data.incoming or data.labelled"
        )
    return found


def survey(
    paths: Iterable[Path],
    *,
    data: DataConfig,
    home: Home,
    rows_per_shard: int,
    spool: Path,
    unique_columns: tuple[str, ...] = (),
) -> Survey:
    """Digest, row count and shards of every file, in one pass and bounded memory.

    Of the rows of a partition that share an id, or a value of one of `unique_columns`, the first
    wins; the others are named in their shards' `repeats`. Inputs that cannot be read from the
    middle are copied into the folder `spool` as plain UTF-8, named by their content.

    Raises:
        ConfigError: a file's format cannot be told.
        DataContractError: a file lacks a column or is damaged.
    """
    seen = _SeenValues((*([data.id_column] if data.id_column else []), *unique_columns))
    inputs: list[InputFile] = []
    shards: list[Shard] = []
    for path in paths:
        found, cuts = _survey_file(path, data, home=home, seen=seen, rows_per_shard=rows_per_shard)
        inputs.append(found)
        for cut in cuts:
            shards.append(cut.shard(len(shards), found, path=path))
    return Survey(tuple(inputs), tuple(shards))


def file_format(path: Path, data: DataConfig) -> FileFormat:
    """Format of a file: as configured, else by its ending.

    Raises:
        ConfigError: the ending is not known.
    """
    if data.format != "auto":
        return data.format
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise ConfigError(
            f"{path}: format of ending {path.suffix!r} is not known, expected one of "
            f"{', '.join(FORMATS)}; set data.format"
        ) from None


class _SeenValues:
    """Values met so far in a partition, by column; 16 bytes of a hash stand for each."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._digests: dict[str, set[bytes]] = {column: set() for column in columns}

    def repeated(self, item: RawRow | Rejected) -> Iterator[str]:
        """The columns of a row whose value an earlier row has."""
        if isinstance(item, Rejected):
            return
        for column, digests in self._digests.items():
            value = id_text(item.values.get(column))
            if value is None:
                continue
            digest = hashlib.blake2b(value.encode(), digest_size=16).digest()
            if digest in digests:
                yield column
            digests.add(digest)


@dataclass(slots=True)
class _Cut:
    """A shard in the making."""

    start: int
    stop: int
    first_row: int
    rows: int
    repeats: dict[str, list[int]]

    def shard(self, index: int, file: InputFile, *, path: Path) -> Shard:
        return Shard(
            index=index,
            name=file.name,
            path=str(path),
            format=file.format,
            start=self.start,
            stop=self.stop,
            first_row=self.first_row,
            rows=self.rows,
            repeats={column: tuple(rows) for column, rows in self.repeats.items()},
        )


# Where a row begins and ends in its file, and the row.
_Placed = tuple[int, int, RawRow | Rejected]


def _files_at(location: str, home: Home) -> tuple[Path, ...]:
    place = Path(os.path.normpath(home.resolve(location)))
    if place.is_file():
        return (place,)
    if place.is_dir():
        files = (path for path in place.iterdir() if path.suffix.lower() in FORMATS)
        return tuple(sorted(path for path in files if path.is_file() and path.name[0] != "."))
    # The home's own path may hold characters that a glob takes as its own, so it is no part of it.
    matches = glob.glob(location, root_dir=home.root, recursive=True)  # noqa: PTH207
    found = {Path(os.path.normpath(home.resolve(match))) for match in matches}
    return tuple(sorted(path for path in found if path.is_file()))


def _survey_file(
    path: Path, data: DataConfig, *, home: Home, seen: _SeenValues, rows_per_shard: int
) -> tuple[InputFile, list[_Cut]]:
    name = path.relative_to(home.root).as_posix() if path.is_relative_to(home.root) else str(path)
    kind = file_format(path, data)
    if kind == "parquet":
        cuts = _cut(_parquet_rows(path, data, name=name), seen, rows_per_shard)
        digest = digest_of_file(path)
    else:
        with path.open("rb", buffering=0) as raw:
            hashing = _HashingFile(raw)
            file: BinaryIO = io.BufferedReader(hashing, _BUFFER_BYTES)
            placed = (_json_rows if kind == "jsonl" else _csv_rows)(file, kind, data, name=name)
            cuts = _cut(placed, seen, rows_per_shard)
            digest = hashing.digest.hexdigest()
    return InputFile(
        name=name,
        format=kind,
        bytes=path.stat().st_size,
        rows=sum(cut.rows for cut in cuts),
        sha256=digest,
    ), cuts


class _HashingFile(io.RawIOBase):
    """Hashes a file's bytes while they are read once from start to end."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = self._raw.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:count])
        return count


def _cut(rows: Iterable[_Placed], seen: _SeenValues, rows_per_shard: int) -> list[_Cut]:
    cuts: list[_Cut] = []
    for number, (start, stop, item) in enumerate(rows):
        if number % rows_per_shard == 0:
            cuts.append(_Cut(start, stop, number, 0, {}))
        cut = cuts[-1]
        cut.stop = stop
        cut.rows += 1
        for column in seen.repeated(item):
            cut.repeats.setdefault(column, []).append(number)
    return cuts


def _csv_rows(
    file: BinaryIO, kind: FileFormat, data: DataConfig, *, name: str
) -> Iterator[_Placed]:
    delimiter = DELIMITERS[kind]
    pieces = split_csv(file, delimiter=delimiter)
    first = next(pieces, None)
    if first is None:  # an empty file has no rows; whether it may is the contract's min_rows
        return
    header = read_header(first, delimiter, name=name)
    _require_columns(header, data, name=name)
    for piece, item in text_rows(pieces, csv_parser(header, delimiter), name=name):
        yield piece.start, piece.stop, item


def _json_rows(
    file: BinaryIO, _kind: FileFormat, data: DataConfig, *, name: str
) -> Iterator[_Placed]:
    """JSONL has no header: a column is missing if no row of the file has it."""
    absent = set(_needed_columns(data))
    found: dict[str, None] = {}
    for piece, item in text_rows(split_lines(file), parse_json, name=name):
        if absent and isinstance(item, RawRow):
            absent -= item.values.keys()
            if len(found) < _SHOWN_COLUMNS:
                found.update(dict.fromkeys(item.values))
        yield piece.start, piece.stop, item
    if absent and found:
        present = [column for column in _needed_columns(data) if column not in absent]
        _require_columns(list(dict.fromkeys([*found, *present])), data, name=name)


def _parquet_rows(path: Path, data: DataConfig, *, name: str) -> Iterator[_Placed]:
    # All pages are decoded here, so that damage shows before the first row is scored.
    _require_columns(column_names(path), data, name=name)
    for number, item in enumerate(numbered_parquet_rows(path, name=name)):
        yield number, number + 1, item


def _needed_columns(data: DataConfig) -> tuple[str, ...]:
    return (*([data.id_column] if data.id_column else []), *data.text_columns)


def _require_columns(found: Sequence[str], data: DataConfig, *, name: str) -> None:
    for column in _needed_columns(data):
        if found.count(column) == 1:
            continue
        what = "is there twice" if column in found else f"is missing{did_you_mean(column, found)}"
        shown = ", ".join(known[:_SHOWN_COLUMN_CHARS] for known in found[:_SHOWN_COLUMNS])
        raise DataContractError(
            f"{name}: column {column!r} {what}; columns found: {shown}; "
            f"correct the file, or data.id_column and data.text_columns"
        )
