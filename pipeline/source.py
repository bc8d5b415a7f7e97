"""Where the files of a partition are: paths, folders, globs, `s3://` and `hf://` addresses."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pipeline.engines.remote_files import fetch, remote_files
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.manifest import Compression, FileFormat
    from schemas.task import DataConfig

FORMATS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".zst": "zst", ".bz2": "bz2"}


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One file: its whole address, and its path, None where it is far away."""

    address: str
    path: Path | None = None

    @property
    def compression(self) -> Compression | None:
        """How the file is compressed, by its ending."""
        return COMPRESSIONS.get(PurePosixPath(self.address).suffix.lower())

    @property
    def stem(self) -> str:
        """The file's name without the endings of format and compression."""
        plain = PurePosixPath(self.address)
        return (plain.with_suffix("") if self.compression else plain).stem

    @property
    def ending(self) -> str:
        """The ending that tells the format, the one of a compression left aside."""
        plain = PurePosixPath(self.address)
        return (plain.with_suffix("") if self.compression else plain).suffix.lower()

    def format(self, data: DataConfig) -> FileFormat:
        """Format of the file: as configured, else by its ending.

        Raises:
            ConfigError: the ending is not known.
        """
        if data.format != "auto":
            return data.format
        if self.ending not in FORMATS:
            raise ConfigError(
                f"{self.address}: format of ending {self.ending!r} is not known, expected one of "
                f"{', '.join(FORMATS)}, with {', '.join(COMPRESSIONS)} or nothing behind it; "
                f"set data.format"
            )
        return FORMATS[self.ending]

    def fetch(self, target: Path) -> Path:
        """Copies a file that is far away to `target`, and returns that.

        Raises:
            ConfigError: it is gone, or may not be read.
            TransientError: its storage cannot be reached.
        """
        fetch(self.address, target)
        return target

    def name_in(self, home: Home) -> str:
        """The name that rows carry: relative to the home where the file lies inside."""
        if self.path is None or not self.path.is_relative_to(home.root):
            return self.address
        return self.path.relative_to(home.root).as_posix()


def local_source(path: Path) -> Source:
    """A local file."""
    return Source(path.as_posix(), path)


def sources_at(location: str, home: Home) -> tuple[Source, ...]:
    """Files at a location, sorted: one file, all known ones below a folder, or those of a glob.

    Files whose name, or whose folder below the location, begins with `.` or `_` are left out:
    they are other programs' marks and work in progress.

    Raises:
        ConfigError: the address cannot be used.
        TransientError: a storage cannot be reached.
    """
    found = _far(location) if "://" in location else _near(location, home)
    return tuple(sorted(found))


def _far(location: str) -> list[Source]:
    found = [Source(address) for address in remote_files(location)]
    if [source.address for source in found] == [location]:
        return found
    root = location if not _is_glob(location) else location.rpartition("/")[0]
    below = [source for source in found if not _is_hidden(source.address.removeprefix(root))]
    return below if _is_glob(location) else [source for source in below if source.ending in FORMATS]


def _near(location: str, home: Home) -> list[Source]:
    place = Path(os.path.normpath(home.resolve(location)))
    if place.is_file():
        return [local_source(place)]
    if place.is_dir():
        below = [path for path in place.rglob("*") if not _is_hidden(str(path.relative_to(place)))]
        files = [local_source(path) for path in below if path.is_file()]
        return [source for source in files if source.ending in FORMATS]
    # The home's own path may hold characters that a glob takes as its own, so it is no part of it.
    matches = glob.glob(location, root_dir=home.root, recursive=True)  # noqa: PTH207
    paths = {Path(os.path.normpath(home.resolve(match))) for match in matches}
    return [local_source(path) for path in paths if path.is_file() and not _is_hidden(path.name)]


def _is_glob(location: str) -> bool:
    return any(char in location for char in "*?[")


def _is_hidden(relative: str) -> bool:
    return any(part[0] in "._" for part in PurePosixPath(relative.lstrip("/")).parts)
