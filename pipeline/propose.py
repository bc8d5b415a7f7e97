"""A task file for data nobody has described yet: what is seen, and the choices that follow."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.cells import cell_text
from pipeline.read import read_shard
from pipeline.rows import RawRow
from pipeline.source import local_source
from pipeline.spool import temporary_spool
from pipeline.survey import survey
from schemas.errors import ConfigError, DataContractError, did_you_mean
from schemas.task import DataConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.survey import Survey
    from schemas.home import Home

_MAX_LABELS = 1000
_ID_NAMES = ("id", "record_id", "uuid", "key")
_SEPARATORS = ("|", ";")
_CHARS_PER_TOKEN = 4  # of English text in a 30,000-piece vocabulary; only picks a window size


@dataclass(frozen=True)
class Proposal:
    """A task as a plain mapping, ready to be written as YAML, and what was seen, in sentences."""

    task: dict[str, Any]
    seen: tuple[str, ...]


def propose_task(
    name: str, path: Path, *, text: Sequence[str], labels: Sequence[str], home: Home
) -> Proposal:
    """Reads a whole file once and proposes a task for it.

    Raises:
        ConfigError: a column does not exist, or a label column is no label column.
        DataContractError: the file cannot be read or has no sound row.
    """
    overlap = sorted(set(text) & set(labels))
    if overlap:
        raise ConfigError(f"column {overlap[0]!r} cannot be both text and label")
    rows, found = _read(path, text, home)
    if not rows:
        raise DataContractError(f"{path}: no row could be read")
    _require(path, rows[0], [*text, *labels])
    heads = _heads(labels, rows)
    id_column = _id_column(rows, exclude={*text, *labels})
    task: dict[str, Any] = {
        "name": name,
        "description": f"Predicts {', '.join(labels)} from {', '.join(text)}.",
        "data": {"incoming": str(path), "labelled": str(path)},
    }
    if found.guesses:
        task["data"]["encoding"] = found.inputs[0].encoding
    if id_column:
        task["data"]["id_column"] = id_column
    task["data"]["text_columns"] = list(text)
    task["heads"] = heads
    lengths = sorted(sum(len(cell_text(row.get(c)) or "") for c in text) for row in rows)
    task["window"] = {"max_tokens": _window(lengths), "stride_tokens": _window(lengths) // 4}
    task["schedule"] = None
    seen = (*found.guesses, *_describe(path, rows, lengths, heads, id_column))
    return Proposal(task, seen)


def _read(path: Path, text: Sequence[str], home: Home) -> tuple[list[Mapping[str, Any]], Survey]:
    data = DataConfig(incoming=str(path), text_columns=tuple(text))
    # Whether the columns exist is asked afterwards: here a missing one is a typing error.
    data = data.model_copy(update={"text_columns": ()})
    with temporary_spool(home, "init") as spool:
        found = survey(
            (local_source(path),), data=data, home=home, rows_per_shard=10_000, spool=spool
        )
        items = [item for shard in found.shards for item in read_shard(shard)]
    return [item.values for item in items if isinstance(item, RawRow)], found


def _require(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in row:
            raise ConfigError(
                f"{path} has no column {column!r}{did_you_mean(column, row)}; "
                f"it has {', '.join(row)}"
            )


def _heads(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    named: dict[str, str] = {}
    for column in columns:
        other = named.setdefault(_head_name(column), column)
        if other != column:
            raise ConfigError(
                f"label columns {other!r} and {column!r} would both be head "
                f"{_head_name(column)!r}; rename one"
            )
    return {name: _head(column, rows) for name, column in named.items()}


def _head(column: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A `multi` head where values are lists or hold a separator, else a `single` one."""
    values = [row.get(column) for row in rows]
    if any(isinstance(value, list) for value in values):
        found = Counter(str(part) for value in values for part in value or ())
        return _checked(column, found, len(rows), kind="multi")
    texts = [cell.strip() for value in values if (cell := cell_text(value)) and cell.strip()]
    for separator in _SEPARATORS:
        parts = Counter(part.strip() for cell in texts for part in cell.split(separator))
        # Splitting must reuse labels: a separator inside ordinary names would only make more.
        if any(separator in cell for cell in texts) and len(parts) < len(set(texts)):
            head = _checked(column, parts, len(rows), kind="multi")
            return head | {"separator": separator}
    return _checked(column, Counter(texts), len(rows), kind="single")


def _checked(column: str, found: Counter[str], rows: int, *, kind: str) -> dict[str, Any]:
    labels = sorted(found)
    if len(labels) < 2:
        raise ConfigError(f"label column {column!r} has {len(labels)} distinct values, need two")
    if len(labels) > min(_MAX_LABELS, max(2, rows // 2)):
        raise ConfigError(
            f"label column {column!r} has {len(labels)} distinct values in {rows} rows; "
            f"that is no label, is it the right column?"
        )
    return {"kind": kind, "column": column, "labels": labels}


def _head_name(column: str) -> str:
    """The column's name as a head name: lower case, digits and underscores."""
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in column.lower())
    return name if name[:1].isalpha() else f"head_{name.strip('_')}"


def _id_column(rows: Sequence[Mapping[str, Any]], *, exclude: set[str]) -> str | None:
    """A column named like an id whose values are all there and all different."""
    named = [
        column
        for column in rows[0]
        if column not in exclude and (column.lower() in _ID_NAMES or column.lower().endswith("_id"))
    ]
    for column in named:
        values = [cell_text(row.get(column)) for row in rows]
        if all(values) and len(set(values)) == len(values):
            return column
    return None


def _window(lengths: Sequence[int]) -> int:
    """Smallest of 64, 128, 256 that holds 99 of 100 texts, control tokens included."""
    needed = math.ceil(lengths[int(len(lengths) * 0.99)] / _CHARS_PER_TOKEN) + 8
    return next((size for size in (64, 128) if needed <= size), 256)


def _describe(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    heads: Mapping[str, Mapping[str, Any]],
    id_column: str | None,
) -> tuple[str, ...]:
    middle, long = lengths[len(lengths) // 2], lengths[int(len(lengths) * 0.95)]
    lines = [
        f"{len(rows)} rows in {path.name}",
        f"text: {middle} characters in the middle, {long} at the 95th percentile",
        f"ids: column {id_column!r}" if id_column else "ids: none found, file and row are used",
    ]
    for name, head in heads.items():
        values = Counter(part for row in rows for part in _parts(row.get(head["column"]), head))
        (most, top), *_, (least, low) = values.most_common()
        lines.append(
            f"head {name}: {head['kind']}, {len(head['labels'])} labels, "
            f"from {most!r} ({top}) to {least!r} ({low})"
        )
    return tuple(lines)


def _parts(value: Any, head: Mapping[str, Any]) -> list[str]:
    if isinstance(value, list):
        return [str(part) for part in value]
    text = (cell_text(value) or "").strip()
    if not text:
        return []
    return text.split(head["separator"]) if "separator" in head else [text]
