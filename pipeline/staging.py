"""A run's shards before they are published: temp, sync, rename; a shard's manifest last."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file
from schemas.manifest import Counters, PartFile, Shard, ShardManifest, sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Staging:
    """The folder of one run: `scores/`, `quarantine/` and one JSON for each finished shard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scores = folder / "scores"
        self.quarantine = folder / "quarantine"
        self.shards = folder / "shards"

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


def write_parquet(table: pa.Table, path: Path) -> PartFile:
    """Writes a table in one step; answers what a reader needs to trust the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
    return PartFile(name=path.name, rows=table.num_rows, sha256=digest_of_file(path))
