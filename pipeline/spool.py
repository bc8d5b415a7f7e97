"""Plain copies of inputs that cannot be read from the middle, kept while a job reads them."""

from __future__ import annotations

import fcntl
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from pipeline.engines.decompress import decompress
from pipeline.engines.parquet_rows import has_large_groups, regroup
from pipeline.engines.text_encoding import UTF_8, Encoding, detect_encoding, transcode
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of, digest_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.source import Source
    from schemas.home import Home
    from schemas.task import DataConfig

_LOCK = ".lock"
_UTF_8_NAMES = frozenset({UTF_8, "utf-8-sig"})  # what is read as it is


@dataclass(frozen=True, slots=True)
class PlainInput:
    """An input that can be read from the middle; `size` and `sha256` are of the file as it came.

    `cut_off`: its compressed form ends too early or is damaged, so what follows is lost.
    """

    path: Path
    encoding: Encoding
    cut_off: bool
    size: int
    sha256: str


@contextmanager
def temporary_spool(home: Home, task: str) -> Iterator[Path]:
    """A folder for such copies, gone when the block ends.

    Those of jobs that were killed go as well: a lock tells, which the kernel lets go of with them.
    """
    parent = home.staging(task)
    parent.mkdir(parents=True, exist_ok=True)
    for abandoned in parent.glob("inputs-*"):
        with suppress(OSError), (abandoned / _LOCK).open() as lock:  # not there yet: just begun
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held: another job's
            shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(mkdtemp(prefix="inputs-", dir=parent))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plain_input(
    source: Source, data: DataConfig, *, spool: Path, rows_per_shard: int
) -> PlainInput:
    """The file itself if it is local and plain, else a copy in `spool` named by its content.

    Raises:
        ConfigError: its address or encoding cannot be used.
        DataContractError: it is not what its ending says.
        TransientError: its storage cannot be reached.
    """
    with _workroom(spool) as new_file:
        came = source.path or source.fetch(new_file("came"))
        try:
            size, sha256 = came.stat().st_size, digest_of_file(came)
        except FileNotFoundError:
            raise DataContractError(
                f"{source.address} does not exist any more; run again"
            ) from None
        plain, cut_off = came, False
        if source.compression is not None:
            plain = new_file("plain")
            cut_off = not decompress(came, plain, source.compression, name=source.address)
        plain, encoding = _readable(plain, source, data, new_file, rows_per_shard=rows_per_shard)
        if plain != source.path:
            kind = source.format(data)
            facts = [sha256, source.compression, kind, encoding.name, rows_per_shard]
            plain = plain.replace(spool / f"{digest_of(facts)[:32]}.{kind}")
        return PlainInput(plain, encoding, cut_off, size, sha256)


@contextmanager
def _workroom(spool: Path) -> Iterator[Callable[[str], Path]]:
    """Gives paths for what is only needed meanwhile; no folder is made where none is asked for."""
    with ExitStack() as stack:

        @cache
        def folder() -> Path:
            spool.mkdir(parents=True, exist_ok=True)
            return Path(stack.enter_context(TemporaryDirectory(dir=spool, prefix=".decoding-")))

        yield lambda name: folder() / name


def _readable(
    path: Path,
    source: Source,
    data: DataConfig,
    new_file: Callable[[str], Path],
    *,
    rows_per_shard: int,
) -> tuple[Path, Encoding]:
    """A file whose records can be read from the middle, and in what encoding it was."""
    name = source.address
    if source.format(data) == "parquet":
        encoding = Encoding(UTF_8)
        if has_large_groups(path, name=name, rows_per_shard=rows_per_shard):
            target = new_file("regrouped")
            regroup(path, target, name=name, rows_per_group=rows_per_shard)
            return target, encoding
        return path, encoding
    encoding = detect_encoding(path) if data.encoding == "auto" else Encoding(data.encoding)
    if encoding.name in _UTF_8_NAMES:
        return path, encoding
    target = new_file("transcoded")
    transcode(path, target, encoding.name, name=name)
    return target, encoding
