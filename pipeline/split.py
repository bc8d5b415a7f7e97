"""Where a record of a text file begins and ends: the one answer for survey and reading.

The answer depends only on the bytes that follow a record's start, so a shard read from its own
start finds the same records as a pass over the whole file.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A quoted field that runs on for longer than this is taken as never closed: it bounds memory, and
# it is far over any text that a contract lets through.
MAX_QUOTED_BYTES = 16 << 20
_QUOTE = b'"'


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one record, without its line end; `start` and `stop` are offsets in the file.

    `unclosed`: the record opens a quote that never closes properly; it ends at its first line end.
    """

    start: int
    stop: int
    raw: bytes
    unclosed: bool = False


class _Lines:
    """Lines of a file with the offset reached; lines read too far ahead can be given back."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file = file
        self._ahead: deque[bytes] = deque()
        self.offset = start

    def take(self) -> bytes:
        """The next line with its line end; empty at the end of the file."""
        line = self._ahead.popleft() if self._ahead else self._file.readline()
        if self.offset == 0 and line.startswith(BYTE_ORDER_MARK):
            self.offset = len(BYTE_ORDER_MARK)
            line = line[len(BYTE_ORDER_MARK) :]
        self.offset += len(line)
        return line

    def give_back(self, lines: Sequence[bytes]) -> None:
        """Makes `lines` the next ones to be taken."""
        self._ahead.extendleft(reversed(lines))
        self.offset -= sum(map(len, lines))


def split_lines(file: BinaryIO, *, start: int = 0) -> Iterator[Piece]:
    """Records of a JSONL file positioned at `start`: its lines that are not blank."""
    lines = _Lines(file, start)
    while line := lines.take():
        if line.strip():
            yield Piece(lines.offset - len(line), lines.offset, line.rstrip(b"\r\n"))


def split_csv(file: BinaryIO, *, delimiter: bytes, start: int = 0) -> Iterator[Piece]:
    """Records of a CSV file positioned at `start`; a line end inside quotes is not a record's."""
    lines = _Lines(file, start)
    while first := lines.take():
        if not first.strip(b"\r\n"):
            continue
        begin = lines.offset - len(first)
        more = _continuation(first, lines, delimiter)
        raw = b"".join([first, *(more or ())]).rstrip(b"\r\n")
        yield Piece(begin, lines.offset, raw, unclosed=more is None)


def _continuation(first: bytes, lines: _Lines, delimiter: bytes) -> list[bytes] | None:
    """The lines that belong to a record after its first; None if its quote never closes.

    Lines looked at in vain are given back. They are scanned at most twice: what lies before the
    first odd run of quotes cannot open a quote and leave it open.
    """
    if _QUOTE not in first:
        return []
    ending = _scan(first, delimiter, in_quotes=False)
    more: list[bytes] = []
    size = len(first)
    while ending is _Ending.OPEN:
        line = lines.take()
        more.append(line)
        size += len(line)
        if not line or size > MAX_QUOTED_BYTES:
            ending = _Ending.BROKEN
        else:
            ending = _scan(line, delimiter, in_quotes=True)
    if ending is _Ending.BROKEN:
        lines.give_back(more)
        return None
    return more


class _Ending(Enum):
    CLOSED = auto()  # the record ends with the line
    OPEN = auto()  # the line ends inside quotes
    BROKEN = auto()  # the quote that opened on an earlier line is closed in the middle of a field


def _scan(line: bytes, delimiter: bytes, *, in_quotes: bool) -> _Ending:
    """How a line leaves the record.

    Within one line a quote closed in mid-field is read leniently, as Python's csv module does.
    Where the field began on an earlier line, it means that this quote opens another record's field
    and that the earlier one was never closed: reading on would swallow rows without a trace.
    """
    spans_lines = in_quotes
    position = 0
    if not in_quotes and line.startswith(_QUOTE):
        in_quotes, position = True, 1
    while True:
        if in_quotes:
            position = _after_closing_quote(line, position)
            if position < 0:
                return _Ending.OPEN
            if spans_lines and line[position : position + 1] not in {delimiter, b"\n", b"\r", b""}:
                return _Ending.BROKEN
            spans_lines = False
        position = line.find(delimiter, position) + 1
        if position == 0:
            return _Ending.CLOSED
        in_quotes = line.startswith(_QUOTE, position)
        position += in_quotes


def _after_closing_quote(line: bytes, position: int) -> int:
    """Position behind the quote that closes a field, -1 if there is none; `""` is a quote."""
    while (quote := line.find(_QUOTE, position)) >= 0:
        if not line.startswith(_QUOTE, quote + 1):
            return quote + 1
        position = quote + 2
    return -1
