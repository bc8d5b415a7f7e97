"""What flows between the text steps: a row as read, a record as validated, a rejected row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.reasons import Reason, Stage


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the file has it: values by column, and the bytes they were read from."""

    source_file: str
    source_row: int
    values: Mapping[str, Any]
    raw: bytes


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
    """One row that is not scored, with the reason; it goes to quarantine, it is never dropped."""

    record_id: str | None
    source_file: str
    source_row: int
    stage: Stage
    reason: Reason
    detail: str
    raw: bytes
