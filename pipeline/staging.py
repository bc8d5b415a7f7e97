"""A run's shards before they are published: temp, sync, rename; a shard's manifest last."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.attempts import Attempts, signs_of_life
from schemas.errors import ArtifactError, ShardError
from schemas.fingerprint import digest_of_file
from schemas.manifest import Counters, PartFile, Shard, ShardManifest, sync_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


_LAST_BEGUN = "last-begun"  # a name, because file times are those of a clock that may be set back


class Staging:
    """The folder of one run: `scores/`, `quarantine/` and one JSON for each finished shard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scores = folder / "scores"
        self.quarantine = folder / "quarantine"
        self.shards = folder / "shards"
        self._attempts = folder / "attempts"

    def finished(self, shards: Sequence[Shard]) -> dict[int, ShardManifest]:
        """Manifests of the shards that are done, by index; a torn or foreign one does not count."""
        done = {}
        for shard in shards:
            try:
                manifest = ShardManifest.read(self._manifest_path(shard.index))
            except ArtifactError:
                continue
            if manifest.shard == shard:
                done[shard.index] = manifest
        return done

    def rejected(self) -> tuple[Path, ...]:
        """Quarantine files of the shards written so far, in their order."""
        return tuple(sorted(self.quarantine.glob("*.parquet")))

    def begin(self) -> None:
        """Marks this run as the one of its partition that was begun last."""
        write_atomically(self.folder.parent / _LAST_BEGUN, self.folder.name.encode())

    def attempts(self, index: int) -> Attempts:
        """The attempts at a shard that have not led to its manifest."""
        return Attempts(self._attempts / f"{index:05d}")

    def signs_of_life(self) -> dict[str, int]:
        """Attempts by name: work goes on wherever two looks differ."""
        return signs_of_life(self._attempts)

    def forget(self, index: int) -> None:
        """Makes a shard count as not done, so that the next run scores it again."""
        self._manifest_path(index).unlink(missing_ok=True)

    def write(
        self, shard: Shard, *, scores: pa.Table, quarantine: pa.Table, counters: Counters
    ) -> ShardManifest:
        """Writes a shard's two files, then its manifest, whose existence means it is done."""
        name = f"part-{shard.index:05d}.parquet"
        manifest = ShardManifest(
            shard=shard,
            counters=counters,
            scores=write_parquet(scores, self.scores / name),
            quarantine=write_parquet(quarantine, self.quarantine / name),
        )
        manifest.write(self._manifest_path(shard.index))
        return manifest

    def _manifest_path(self, index: int) -> Path:
        return self.shards / f"{index:05d}.json"


def last_begun(folder: Path) -> str:
    """Name of the run below a folder that was begun last; empty where none was."""
    path = folder / _LAST_BEGUN
    return path.read_text() if path.exists() else ""


def link_part(source: Path, target: Path, part: PartFile) -> PartFile:
    """Gives a finished file a second place, without a copy where the file system can link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # a copy over a link would write into the file behind it
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
    return part.model_copy(update={"name": target.name})


def check_each_row_once(shard: Shard, scores: pa.Table, quarantine: pa.Table) -> None:
    """Makes sure that the rows of a shard are those of its two tables, each once.

    Raises:
        ShardError: a row is lost, doubled or of another shard, which is a bug of ours.
    """
    rows = sorted([*scores["source_row"].to_pylist(), *quarantine["source_row"].to_pylist()])
    if rows != list(shard.row_numbers):
        missing = sorted(set(shard.row_numbers) - set(rows))
        raise ShardError(
            f"shard {shard.index} of {shard.name}: {shard.rows_to_do} rows expected, got "
            f"{len(rows)}, {len(set(rows))} of them different; missing are {missing[:10]}"
        )


def write_parquet(table: pa.Table, path: Path) -> PartFile:
    """Writes a table in one step; answers what a reader needs to trust the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replaced(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    return PartFile(name=path.name, rows=table.num_rows, sha256=digest_of_file(path))


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which takes its place at the end or is gone."""
    # Process ids are not enough: two machines may have the same shard for a moment.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    except Exception:
        temporary.unlink(missing_ok=True)  # on a full disk its room is needed
        raise
    temporary.replace(path)
    sync_folder(path.parent)
