"""Rows into the bytes of CSV and JSONL files, sound ones and broken ones."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Literal

from pipeline.sample.faults import BAD_BYTES, BAD_BYTES_MARK, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from random import Random

FormatName = Literal["csv", "jsonl"]


def header(columns: Sequence[str], format_name: FormatName) -> bytes:
    """What stands before the first row."""
    return _csv_line(columns) if format_name == "csv" else b""


def encode(
    values: Mapping[str, Any], format_name: FormatName, *, fault: Fault | None, rng: Random
) -> bytes:
    """One row with its line end; a fault of the format is made here."""
    row = _csv_row(values, fault) if format_name == "csv" else _json_row(values, fault, rng)
    return row.replace(BAD_BYTES_MARK.encode(), BAD_BYTES)


def count_rows(path: Path) -> int:
    """Rows in a sample file as a reader counts them, broken ones too, the CSV header not.

    A CSV row may span lines; a JSONL row is a line.
    """
    content = path.read_bytes()
    if path.suffix == ".csv":
        text = content.decode("latin-1")  # any bytes will do: only commas and quotes matter
        return sum(1 for _ in csv.reader(io.StringIO(text, newline=""))) - 1
    return content.count(b"\n")


def _csv_row(values: Mapping[str, Any], fault: Fault | None) -> bytes:
    fields = list(values.values())
    if fault is Fault.TOO_FEW_FIELDS:
        fields = fields[:3]
    elif fault is Fault.TOO_MANY_FIELDS:
        fields = [*fields, "see attachment"]
    return _csv_line(fields)


def _csv_line(fields: Sequence[Any]) -> bytes:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(fields)
    return line.getvalue().encode()


def _json_row(values: Mapping[str, Any], fault: Fault | None, rng: Random) -> bytes:
    line = json.dumps(values, ensure_ascii=False)
    if fault is Fault.BROKEN_JSON:
        cut = line[: rng.randint(len(line) // 3, len(line) - 1)]
        line = rng.choice((cut, line.replace('": ', '" ', 1)))
    return f"{line}\n".encode()
