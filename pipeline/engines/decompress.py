"""Compressed files, also those that are cut off or damaged: what can be had of them is had."""

from __future__ import annotations

import bz2
import zlib
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from schemas.manifest import Compression

_READ_BYTES = 64 << 10
_OUTPUT_BYTES = 1 << 20
_MAGIC: dict[Compression, bytes] = {"gz": b"\x1f\x8b", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd"}
_SKIPPABLE_ZST = b"\x2a\x4d\x18"  # of a frame without content, behind a first byte of any value


def decompress(path: Path, target: Path, compression: Compression, *, name: str) -> bool:
    """Writes the content of `path` to `target`; True if the file is whole.

    Of one that is cut off or damaged, what lies before the damage is written.

    Raises:
        DataContractError: the file is not compressed in this way at all.
    """
    with path.open("rb") as file:
        start = file.read(4)
    magic = _MAGIC[compression]
    skippable = compression == "zst" and start[1:] == _SKIPPABLE_ZST
    if not (skippable or start.startswith(magic[: len(start)])):
        raise DataContractError(
            f"{name} is not compressed as its ending .{compression} says; rename it, or ask its "
            f"producer for it again"
        )
    parts = _zst(path) if compression == "zst" else _whole_members(path, _DECODERS[compression])
    with target.open("wb") as file:
        try:
            for part in parts:
                file.write(part)
        except _DamagedError:
            return False
    return True


class _DamagedError(Exception):
    """The compressed bytes end too early, or (in the step from an offset on) make no sense."""

    def __init__(self, step_from: int | None = None) -> None:
        super().__init__()
        self.step_from = step_from


class _Decoder(Protocol):
    """One compressed member of a file; several may follow each other."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""

    @property
    def unused_data(self) -> bytes:
        """Bytes behind the member."""

    def feed(self, data: bytes) -> bytes:
        """At most `_OUTPUT_BYTES` more of the content; give b"" until it returns b""."""


class _Gz:
    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def feed(self, data: bytes) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, _OUTPUT_BYTES)


class _Bz2:
    def __init__(self) -> None:
        self._decoder = bz2.BZ2Decompressor()

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def feed(self, data: bytes) -> bytes:
        return b"" if self.eof else self._decoder.decompress(data, _OUTPUT_BYTES)


_DECODERS: dict[Compression, Callable[[], _Decoder]] = {"gz": _Gz, "bz2": _Bz2}


def _whole_members(path: Path, new_decoder: Callable[[], _Decoder]) -> Iterator[bytes]:
    """The content of all members of a file, up to the last byte before any damage.

    Raises:
        _DamagedError: behind all that could be read.
    """
    size = 0
    try:
        for part in _members(path, new_decoder):
            size += len(part)
            yield part
    except _DamagedError as error:
        if error.step_from is not None:
            # A decoder keeps back what it had of the step that failed; byte by byte nothing is.
            yield from _behind(size, _members(path, new_decoder, bytewise_from=error.step_from))
        raise


def _members(
    path: Path, new_decoder: Callable[[], _Decoder], *, bytewise_from: int | None = None
) -> Iterator[bytes]:
    decoder = new_decoder()
    with path.open("rb") as file:
        while True:
            step_from = file.tell()
            bytewise = bytewise_from is not None and step_from >= bytewise_from
            data = file.read(1 if bytewise else _READ_BYTES)
            if not data:
                break
            if decoder.eof:
                data = data.lstrip(b"\0")
            try:
                while data:
                    if decoder.eof:
                        decoder = new_decoder()
                    yield from _fed(decoder, data)
                    # Zeros behind a member are padding, as tapes and archives have it.
                    data = decoder.unused_data.lstrip(b"\0") if decoder.eof else b""
            except (zlib.error, OSError) as error:
                raise _DamagedError(step_from) from error
    if not decoder.eof:
        raise _DamagedError


def _fed(decoder: _Decoder, data: bytes) -> Iterator[bytes]:
    part = decoder.feed(data)
    while part:
        yield part
        part = decoder.feed(b"")


def _behind(size: int, parts: Iterator[bytes]) -> Iterator[bytes]:
    """What parts hold behind their first `size` bytes, as far as they can be had."""
    try:
        for part in parts:
            yield part[min(size, len(part)) :]
            size -= min(size, len(part))
    except _DamagedError:
        return


def _zst(path: Path) -> Iterator[bytes]:
    """The content of a Zstandard file.

    Raises:
        _DamagedError: behind all that could be read.
    """
    size = 0
    try:
        for part in _arrow_parts(path, _READ_BYTES):
            size += len(part)
            yield part
    except OSError as error:
        # Arrow keeps back what it had of the step that failed; byte by byte nothing is lost.
        yield from _tail(path, behind=size)
        raise _DamagedError from error
    if size == 0 and path.stat().st_size == 0:
        raise _DamagedError


def _tail(path: Path, *, behind: int) -> Iterator[bytes]:
    tail = bytearray()
    try:
        with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
            for _ in range(behind // _READ_BYTES):
                stream.read(_READ_BYTES)
            while byte := stream.read(1):
                tail += byte
    except OSError:
        yield bytes(tail)


def _arrow_parts(path: Path, read_bytes: int) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
        while part := stream.read(read_bytes):
            yield part
