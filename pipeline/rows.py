"""What flows between the text steps: a row as read, a record as validated, a rejected row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.reasons import Reason, Stage


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the file has it: values by column, and the bytes they were read from.

    `repeated` names the columns whose value an earlier row of the partition has, where it may not.
    """

    source_file: str
    source_row: int
    values: Mapping[str, Any]
    raw: bytes
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One valid row. `texts` is `(head, body)` or `(body,)`; a record's name is `record_id`."""

    record_id: str
    source_file: str
    source_row: int
    texts: tuple[str, ...]
    values: Mapping[str, Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """One row that is not scored, with the reason; it goes to quarantine, it is never dropped.

    Where `raw` is only the beginning of the row, `raw_sha256` and `raw_bytes` are of the whole.
    """

    record_id: str | None
    source_file: str
    source_row: int
    stage: Stage
    reason: Reason
    detail: str
    raw: bytes
    raw_sha256: str | None = None
    raw_bytes: int | None = None
