"""Places that a published night is copied to: a folder, or a bucket of an S3-compatible service.

Keys are relative, with slashes. A write is seen whole or not at all, whoever dies in it.
"""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING, BinaryIO, Protocol

from pipeline.engines.remote_files import named_errors, s3_filesystem
from schemas.errors import ConfigError
from schemas.manifest import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

_S3 = "s3://"


class ObjectStore(Protocol):
    """Named bytes. Every method raises ConfigError where access is refused, else TransientError."""

    location: str

    def put(self, key: str, source: Path) -> None:
        """Copies a local file to `key`, replacing what is there."""

    def write(self, key: str, content: bytes) -> None:
        """Writes a small object in one step, replacing what is there."""

    def read(self, key: str) -> bytes | None:
        """A small object, None where there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes by key of all that lies below a folder."""

    def remove(self, folder: str) -> None:
        """Removes all that lies below a folder."""


def open_store(location: str, *, resolve: Callable[[str], Path]) -> ObjectStore:
    """The store at an `s3://bucket/prefix` address, or at a path that `resolve` makes absolute.

    Raises:
        ConfigError: the address is of another kind, or the bucket does not exist.
        TransientError: the service cannot be reached.
    """
    if location.startswith(_S3):
        return BucketStore(location)
    if "://" in location:
        raise ConfigError(f"sink {location}: expected a folder or an s3:// address")
    return FolderStore(resolve(location))


class FolderStore:
    """Objects as files below a folder."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self._root = root

    def put(self, key: str, source: Path) -> None:
        """Copies under another name, syncs, renames."""
        with source.open("rb") as file:
            self._place(key, file)

    def write(self, key: str, content: bytes) -> None:
        """Writes under another name, syncs, renames."""
        self._place(key, io.BytesIO(content))

    def _place(self, key: str, source: BinaryIO) -> None:
        target = self._root / key
        # One name for all attempts: what a driver that died has left is the next one's.
        temporary = target.with_name(f".{target.name}.tmp")
        with named_errors(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                shutil.copyfileobj(source, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            sync_folder(target.parent)

    def read(self, key: str) -> bytes | None:
        """The file's bytes, None where there is none."""
        path = self._root / key
        with named_errors(str(path)):
            return path.read_bytes() if path.exists() else None

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file."""
        with named_errors(f"{self._root / folder}"):
            return {
                path.relative_to(self._root).as_posix(): path.stat().st_size
                for path in sorted((self._root / folder).rglob("*"))
                if path.is_file()
            }

    def remove(self, folder: str) -> None:
        """Removes the folder with all in it."""
        with named_errors(f"{self._root / folder}"):
            shutil.rmtree(self._root / folder, ignore_errors=True)


class BucketStore:
    """Objects below a prefix of a bucket; credentials and endpoint by AWS's own variables."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self._prefix = self.location.removeprefix(_S3)
        self._storage: Any = s3_filesystem()
        with named_errors(self.location):
            self._check_bucket()

    def put(self, key: str, source: Path) -> None:
        """Uploads a file; it is there once its last byte is."""
        self.write(key, source.read_bytes())

    def write(self, key: str, content: bytes) -> None:
        """Uploads bytes in one call, or in parts that count only when all are there."""
        with (
            named_errors(f"{self.location}/{key}"),
            self._storage.open_output_stream(f"{self._prefix}/{key}") as stream,
        ):
            stream.write(content)

    def read(self, key: str) -> bytes | None:
        """The object's bytes, None where there is none."""
        from pyarrow.fs import FileType  # noqa: PLC0415

        path = f"{self._prefix}/{key}"
        with named_errors(f"{self.location}/{key}"):
            if self._storage.get_file_info(path).type != FileType.File:
                return None
            with self._storage.open_input_stream(path, compression=None) as stream:
                content: bytes = stream.read()
            return content

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each object."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        selector = FileSelector(f"{self._prefix}/{folder}", recursive=True, allow_not_found=True)
        with named_errors(f"{self.location}/{folder}"):
            return {
                entry.path.removeprefix(f"{self._prefix}/"): entry.size
                for entry in self._storage.get_file_info(selector)
                if entry.type == FileType.File
            }

    def remove(self, folder: str) -> None:
        """Deletes every object whose key begins with the folder."""
        with named_errors(f"{self.location}/{folder}"):
            self._storage.delete_dir(f"{self._prefix}/{folder}")

    def _check_bucket(self) -> None:
        from pyarrow.fs import FileType  # noqa: PLC0415

        bucket = self._prefix.partition("/")[0]
        if self._storage.get_file_info(bucket).type == FileType.NotFound:
            raise FileNotFoundError(bucket)
