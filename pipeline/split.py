"""Where a record of a text file begins and ends: the one answer for survey and reading.

The answer depends only on the bytes that follow a record's start, so a shard read from its own
start finds the same records as a pass over the whole file. Files are read in chunks, so that
neither an endless line nor an endless quote costs more memory than one record may have.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DEFAULT_MAX_BYTES = 64 << 20
HEAD_BYTES = 64 << 10  # what is kept of a record that is not read as a whole
CHUNK_BYTES = 1 << 20
_QUOTE = b'"'
_QUOTE_BYTE = _QUOTE[0]
# A line whose quotes are all closed, which is nearly every line; `_scan` says the same, slowly.
# Possessive throughout, so that it takes time linear in the line.
_CLOSED_LINE = rb"(?:%(field)b%(delimiter)b)*+%(field)b"
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^%b]*+|(?!")[^%b]*+)'
_CLOSED_LINES = {
    delimiter: re.compile(
        _CLOSED_LINE % {b"field": _FIELD % (delimiter, delimiter), b"delimiter": delimiter}
    )
    for delimiter in (b",", b"\t")
}


class Flaw(Enum):
    """Why the bytes of a record are not one."""

    UNCLOSED = auto()  # it opens a quote that never closes properly; it ends at its first line end
    TOO_LARGE = auto()  # it has more bytes than a record may have
    CUT_OFF = auto()  # the file is cut off here, and this is what the cut has left


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one record, without its line end; `start` and `stop` are offsets in the file.

    Of one that is over the limit `raw` is the beginning; `sha256` and `size` are of the whole.
    """

    start: int
    stop: int
    raw: bytes
    flaw: Flaw | None = None
    sha256: str | None = None
    size: int | None = None


def split_lines(
    file: BinaryIO, *, start: int = 0, max_bytes: int = DEFAULT_MAX_BYTES, cut_off: bool = False
) -> Iterator[Piece]:
    """Records of a JSONL file: from offset `start` on, its lines that are not blank.

    A file that is `cut_off` ends with one piece that says so, which may be empty.
    """
    chunks = _Chunks(file, start, max_bytes, cut_off=cut_off)
    while chunk := chunks.take():
        begin = chunks.offset - len(chunk)
        if chunk.endswith(b"\n") and len(chunk) <= max_bytes:
            if chunk.strip():
                yield Piece(begin, chunks.offset, chunk.rstrip(b"\r\n"))
            continue
        piece = chunks.piece(begin, chunks.whole_line(chunk))
        if piece.flaw or piece.raw.strip():
            yield piece
    yield from chunks.cut()


def split_csv(
    file: BinaryIO,
    *,
    delimiter: bytes,
    start: int = 0,
    max_bytes: int = DEFAULT_MAX_BYTES,
    cut_off: bool = False,
) -> Iterator[Piece]:
    """Records of a CSV file from offset `start` on; a line end inside quotes is not a record's.

    A file that is `cut_off` ends with one piece that says so, which may be empty.
    """
    closed_line = _CLOSED_LINES[delimiter].fullmatch
    chunks = _Chunks(file, start, max_bytes, cut_off=cut_off)
    while chunk := chunks.take():
        begin = chunks.offset - len(chunk)
        is_line = chunk.endswith(b"\n") and len(chunk) <= max_bytes
        if is_line and (_QUOTE not in chunk or closed_line(chunk)):
            if raw := chunk.rstrip(b"\r\n"):
                yield Piece(begin, chunks.offset, raw)
            continue
        piece = _csv_record(chunk, chunks, delimiter)
        if piece.flaw or piece.raw:
            yield piece
    yield from chunks.cut()


def _csv_record(first: bytes, chunks: _Chunks, delimiter: bytes) -> Piece:
    """The record that begins with the chunk `first`.

    Chunks looked at in vain are read again. They are scanned at most twice: what lies before the
    first odd run of quotes cannot open a quote and leave it open.
    """
    begin = chunks.offset - len(first)
    state = _scan(first, delimiter, _State.FIELD_START)
    held = [first]
    while state < _State.CLOSED and (chunk := chunks.take()):
        state = _scan(chunk, delimiter, state)
        if chunks.offset - begin <= chunks.limit:
            held.append(chunk)
    if state in _OPEN and chunks.cut_off:
        return chunks.piece(begin, b"".join(held), Flaw.CUT_OFF)
    if state not in _OPEN and state is not _State.BROKEN:
        return chunks.piece(begin, b"".join(held))
    chunks.seek(begin)
    return chunks.piece(begin, chunks.whole_line(chunks.take()), Flaw.UNCLOSED)


class _Chunks:
    """A file in lines, long lines in parts, with the offset reached."""

    def __init__(self, file: BinaryIO, start: int, max_bytes: int, *, cut_off: bool) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self.limit = max_bytes + 2  # a record with its line end
        self.cut_off = cut_off
        file.seek(start)
        has_mark = start == 0 and file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
        self.seek(len(BYTE_ORDER_MARK) if has_mark else start)

    def take(self) -> bytes:
        """The next line with its line end, or a part of it; empty at the end of the file."""
        chunk = self._file.readline(CHUNK_BYTES)
        self.offset += len(chunk)
        return chunk

    def seek(self, offset: int) -> None:
        """Makes the chunk at `offset` the next one."""
        self._file.seek(offset)
        self.offset = offset

    def whole_line(self, first: bytes) -> bytes:
        """The line that begins with `first`; of one over the limit only the beginning."""
        chunk, held, size = first, [first], len(first)
        while not chunk.endswith(b"\n") and (chunk := self.take()):
            size += len(chunk)
            if size <= self.limit:
                held.append(chunk)
        return b"".join(held)

    def piece(self, begin: int, read: bytes, flaw: Flaw | None = None) -> Piece:
        """The record from `begin` to the offset reached, of which `read` is at least the head."""
        stop = self.offset
        if self.cut_off and (flaw is Flaw.CUT_OFF or self._ends_with_file()):
            flaw, self.cut_off = Flaw.CUT_OFF, False
        if stop - begin == len(read):
            raw = read.rstrip(b"\r\n")
            if len(raw) <= self._max_bytes:
                return Piece(begin, stop, raw, flaw)
        sha256, size = self._digest(begin, stop)
        return Piece(begin, stop, read[:HEAD_BYTES], flaw or Flaw.TOO_LARGE, sha256, size)

    def cut(self) -> Iterator[Piece]:
        """The empty piece of a file that was cut off right behind a record."""
        if self.cut_off:
            yield Piece(self.offset, self.offset, b"", Flaw.CUT_OFF)

    def _ends_with_file(self) -> bool:
        """Whether the record read last has no line end because the file has no more bytes."""
        self._file.seek(self.offset - 1)
        last = self._file.read(2)
        self._file.seek(self.offset)
        return len(last) == 1 and last != b"\n"

    def _digest(self, begin: int, stop: int) -> tuple[str, int]:
        """SHA-256 and length of the bytes from `begin` to `stop`, without the line end."""
        self._file.seek(max(begin, stop - 2))
        ending = self._file.read(2)
        size = stop - begin - (len(ending) - len(ending.rstrip(b"\r\n")))
        digest = hashlib.sha256()
        self._file.seek(begin)
        left = size
        while left and (chunk := self._file.read(min(left, CHUNK_BYTES))):
            digest.update(chunk)
            left -= len(chunk)
        self._file.seek(stop)
        return digest.hexdigest(), size


class _State(IntEnum):
    """How a chunk leaves the record it belongs to; from `CLOSED` on the record is decided."""

    FIELD_START = 0
    PLAIN = 1  # in a field without quotes, or behind a closing quote
    QUOTED = 2
    QUOTED_ACROSS = 3  # the quote was opened on an earlier line
    QUOTE_SEEN = 4  # the last byte was a quote inside quotes: it closes unless another follows
    QUOTE_SEEN_ACROSS = 5
    CLOSED = 6  # the record ends with the line
    BROKEN = 7  # a quote opened on an earlier line is closed in the middle of a field


_OPEN = (_State.QUOTED, _State.QUOTED_ACROSS)


def _scan(chunk: bytes, delimiter: bytes, state: _State) -> _State:
    """The state behind a chunk, given the one before it; a line end is always a chunk's last byte.

    Within one line a quote closed in mid-field is read leniently, as Python's csv module does.
    Where the field began on an earlier line, it means that this quote opens another record's field
    and that the earlier one was never closed: reading on would swallow rows without a trace.
    """
    position, end = 0, len(chunk)
    while position < end:
        if state is _State.QUOTED or state is _State.QUOTED_ACROSS:
            position = chunk.find(_QUOTE, position) + 1
            if position == 0:
                return _State.QUOTED_ACROSS if chunk.endswith(b"\n") else state
            state = _SEEN[state]
        elif state is _State.FIELD_START:
            quoted = chunk[position] == _QUOTE_BYTE
            state = _State.QUOTED if quoted else _State.PLAIN
            position += quoted
        elif state is _State.PLAIN:
            position = chunk.find(delimiter, position) + 1
            if position == 0:
                return _State.CLOSED if chunk.endswith(b"\n") else state
            state = _State.FIELD_START
        elif chunk[position] == _QUOTE_BYTE:
            state = _UNSEEN[state]
            position += 1
        elif state is _State.QUOTE_SEEN_ACROSS and chunk[position] not in delimiter + b"\r\n":
            return _State.BROKEN
        else:
            state = _State.PLAIN
    return state


_SEEN = {
    _State.QUOTED: _State.QUOTE_SEEN,
    _State.QUOTED_ACROSS: _State.QUOTE_SEEN_ACROSS,
}
_UNSEEN = {seen: quoted for quoted, seen in _SEEN.items()}
