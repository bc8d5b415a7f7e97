"""In which encoding a text file is, and its text as UTF-8."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from charset_normalizer import from_bytes

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UTF_8 = "utf-8"
_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
_SAMPLE_BYTES = 64 << 10
_TOLD_LINES = 1000  # lines beyond ASCII that are enough to tell
_MIN_BAD_LINES = 3  # one or two damaged rows say nothing of their file
_MIN_NUL_SHARE = 0.05
_SEPARATORS = frozenset(b'\r\n\t,;:"{}')
_CARRIED = "nightmill-carried"
_MARKS = (  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Of code pages that fit equally well the earlier one is taken: the more common, as files go.
_CODE_PAGES = (
    "cp1252", "cp1250", "cp1254", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp932",
    "euc_jp", "gb18030", "big5", "cp949",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoding:
    """The codec of a file; `guessed` if nothing declares it and the bytes are not UTF-8."""

    name: str
    guessed: bool = False


def detect_encoding(path: Path) -> Encoding:
    """By its byte order mark, else UTF-16 by its NULs, else UTF-8 unless most lines deny it."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name)
    if utf_16 := _utf16_without_mark(head):
        return Encoding(utf_16, guessed=True)
    good_lines, bad_lines, sample = _lines_beyond_ascii(path)
    if bad_lines < _MIN_BAD_LINES or bad_lines <= good_lines:
        return Encoding(UTF_8)
    return Encoding(_code_page(sample), guessed=True)


def transcode(path: Path, target: Path, encoding: str, *, name: str) -> None:
    """Writes the text of `path` to `target` as UTF-8.

    A byte that means nothing in `encoding` is carried over as the lone surrogate U+DC00 + byte, in
    three bytes that are not UTF-8: its row, and no other, is found damaged when it is read.

    Raises:
        ConfigError: the codec is none for text files.
    """
    codecs.register_error(_CARRIED, _carry)
    try:
        b"a".decode(encoding, errors="replace")  # refuses codecs of bytes, such as hex
        decoder = codecs.getincrementaldecoder(encoding)(_CARRIED)
        with path.open("rb") as source, target.open("wb") as plain:
            while chunk := source.read(_CHUNK_BYTES):
                plain.write(decoder.decode(chunk).encode("utf-8", errors="surrogatepass"))
            plain.write(decoder.decode(b"", final=True).encode("utf-8", errors="surrogatepass"))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{name}: data.encoding {encoding!r} is no encoding of text files; use one such as "
            f"utf-8 or cp1252"
        ) from error


def _carry(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(chr(0xDC00 + byte) for byte in bad), error.end


def _utf16_without_mark(head: bytes) -> str | None:
    """UTF-16 shows in NULs beside ASCII characters: nearly all before, or all behind them."""
    even, odd = head[0::2], head[1::2]
    for name, characters, zeros in (("utf-16-le", even, odd), ("utf-16-be", odd, even)):
        enough = max(2, len(head) // 2 * _MIN_NUL_SHARE)
        if zeros.count(0) < enough or characters.count(0) > zeros.count(0) // 10:
            continue
        # Texts of UTF-8 may hold NULs, but what stands between them has none beside it.
        beside = [z == 0 for c, z in zip(characters, zeros, strict=False) if c in _SEPARATORS]
        if sum(beside) * 2 > len(beside):
            return name
    return None


def _lines_beyond_ascii(path: Path) -> tuple[int, int, bytes]:
    """How many lines with bytes over 127 are UTF-8, how many are not, and some of the latter."""
    good, bad, sample = 0, 0, bytearray()
    for line in _non_ascii_lines(path):
        try:
            line.decode(UTF_8)
            good += 1
        except UnicodeDecodeError:
            bad += 1
            sample += line[: _SAMPLE_BYTES - len(sample)]
        if good + bad >= _TOLD_LINES:
            break
    return good, bad, bytes(sample)


def _non_ascii_lines(path: Path) -> Iterator[bytes]:
    """Lines with bytes over 127; of an endless line, parts that are cut between characters."""
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            if not rest and chunk.isascii():
                continue
            block = rest + chunk
            end = block.rfind(b"\n") + 1 or _character_start(block)
            rest = block[end:]
            yield from (line for line in block[:end].splitlines() if not line.isascii())
        if not rest.isascii():
            yield rest


def _character_start(block: bytes) -> int:
    """Where the last character of a block begins, if it is UTF-8."""
    continuations = sum(1 for _ in takewhile(lambda byte: byte & 0xC0 == 0x80, block[:-5:-1]))
    return len(block) - continuations - 1


def _code_page(sample: bytes) -> str:
    """The code page in which a sample reads best; the first of the list where none does."""
    fits = [
        (round(match.chaos, 2), -round(match.coherence, 2), _CODE_PAGES.index(name))
        for match in from_bytes(sample, cp_isolation=list(_CODE_PAGES))
        for name in match.could_be_from_charset
        if name in _CODE_PAGES
    ]
    return _CODE_PAGES[min(fits)[2]] if fits else _CODE_PAGES[0]
