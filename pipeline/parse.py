"""The bytes of one record into values by column, or what is wrong with them."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.errors import DataContractError
from schemas.reasons import Reason

if TYPE_CHECKING:
    from schemas.manifest import FileFormat

DELIMITERS: Mapping[FileFormat, bytes] = {"csv": b",", "tsv": b"\t"}
_SHOWN_NAME_CHARS = 40
_MAYBE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the bytes of a record are not a row."""

    reason: Reason
    detail: str


Parse = Callable[[bytes], Mapping[str, Any] | Trouble]


def header_names(raw: bytes, delimiter: bytes, *, name: str) -> tuple[str, ...]:
    """Column names from the first record of the CSV file `name`.

    Raises:
        DataContractError: it cannot be read, or two columns share a name.
    """
    found = _fields(raw, delimiter.decode())
    if isinstance(found, Trouble):
        raise DataContractError(f"{name}: header cannot be read: {found.detail}; mend the file")
    names = tuple(field.strip() for field in found)
    require_distinct(names, name=name)
    return names


def require_distinct(names: Sequence[str], *, name: str) -> None:
    """Refuses columns that share a name: which of them is meant, nobody can tell.

    Columns without a name, as trailing delimiters make them, are no columns.

    Raises:
        DataContractError: the file `name` has such columns.
    """
    seen: set[str] = set()
    for column in filter(None, names):
        if column in seen:
            raise DataContractError(
                f"{name}: column {column[:_SHOWN_NAME_CHARS]!r} is there twice; rename one of them"
            )
        seen.add(column)


def csv_parser(header: tuple[str, ...], delimiter: bytes) -> Parse:
    """A parser of one CSV record into strings by column."""
    separator = delimiter.decode()
    has_nameless = "" in header

    def parse(raw: bytes) -> Mapping[str, Any] | Trouble:
        fields = _fields(raw, separator)
        if isinstance(fields, Trouble):
            return fields
        if len(fields) != len(header):
            return Trouble(
                Reason.MALFORMED_ROW, f"got {len(fields)} fields, expected {len(header)}"
            )
        values = dict(zip(header, fields, strict=True))
        if has_nameless:
            del values[""]
        return values

    return parse


def parse_json(raw: bytes) -> Mapping[str, Any] | Trouble:
    """The JSON object of one JSONL record."""
    text = _decode(raw)
    values = text if isinstance(text, Trouble) else _json_value(text)
    if isinstance(values, dict | Trouble):
        return values
    return Trouble(Reason.INVALID_JSON, f"expected an object, got {type(values).__name__}")


def _json_value(text: str) -> Any:
    """The value that a JSON text is, or the trouble with it."""
    try:
        values = _JSON.decode(text)
        lone_surrogate = _MAYBE_SURROGATE.search(text) is not None and _has_lone_surrogate(values)
    except json.JSONDecodeError as error:
        return Trouble(Reason.INVALID_JSON, f"{error.msg} at character {error.pos}")
    except _RepeatedNameError as error:
        return Trouble(Reason.INVALID_JSON, f"the name {error.args[0]!r} is there twice")
    except (ValueError, RecursionError):  # a number of thousands of digits, or nesting as deep
        return Trouble(Reason.INVALID_JSON, "a number too long or nesting too deep")
    if lone_surrogate:
        return Trouble(Reason.INVALID_ENCODING, "a lone surrogate, half of a character")
    return values


class _RepeatedNameError(ValueError):
    """A JSON object has a name twice: Python would silently keep the last value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise _RepeatedNameError(repeated[:_SHOWN_NAME_CHARS])
    return values


_JSON = json.JSONDecoder(object_pairs_hook=_object)


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
        byte = _original_byte(raw[error.start : error.start + 3])
        return Trouble(Reason.INVALID_ENCODING, f"byte 0x{byte:02X} at position {error.start}")


def _original_byte(bad: bytes) -> int:
    """The byte that could not be decoded.

    A file of another encoding than UTF-8 was decoded before it came here; a byte that meant
    nothing in it was carried over as the surrogate U+DC00 + byte.
    """
    if len(bad) == 3 and bad[0] == 0xED and 0xB0 <= bad[1] <= 0xB3:
        return (bad[1] - 0xB0) << 6 | (bad[2] & 0x3F)
    return bad[0]


def _has_lone_surrogate(values: Any) -> bool:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
