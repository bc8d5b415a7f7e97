"""Manifests: small JSON documents whose existence means that what they name is complete."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.errors import ArtifactError
from schemas.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

Count = Annotated[int, Field(ge=0)]
FileFormat = Literal["csv", "tsv", "jsonl", "parquet"]
Compression = Literal["gz", "zst", "bz2"]
LOCAL_VERSION = "local"  # of a bundle in a folder, which no registry knows


class Document(BaseModel):
    """Base of all manifests: frozen, strict about its keys, written in one step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Writes the document so that a reader sees the old one or the new one, never a half."""
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Loads a document.

        Raises:
            ArtifactError: it is missing, or not of this shape.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ArtifactError(f"{path} does not exist") from None
        except ValidationError as error:
            raise ArtifactError(f"{path} is not a {cls.__name__}: {error}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Writes `content` under a temporary name, syncs it, and renames it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames inside a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class InputFile(Document):
    """One file of a partition as it was when it was surveyed.

    `name` is the path or address as rows carry it: relative to the home where it lies inside, so
    that the manifest does not depend on where the home is. `bytes` and `sha256` are of the file as
    it came; `encoding_guessed` says that nothing declared its encoding and its bytes are not UTF-8.
    """

    name: str
    format: FileFormat
    compression: Compression | None = None
    encoding: str = "utf-8"
    encoding_guessed: bool = False
    bytes: Count
    rows: Count
    sha256: str


class Shard(Document):
    """A bounded piece of one input file: the unit of work and of resume.

    `path` is where a worker reads: the input itself, or its plain UTF-8 copy where the input is
    compressed, far away or in another encoding. `start` and `stop` are byte offsets for text files
    and row numbers for Parquet. `first_row` is the number of its first row within the file, `rows`
    how many there are. `repeats` names, by column, the rows whose value (of the id, or of a unique
    column) was already seen earlier in the partition; only the survey, which sees all rows, can
    know them. `only_rows` restricts the work to these row numbers. `truncated`: the file is cut
    off behind the last row of this shard, which is what the cut has left of it.
    """

    index: Count
    name: str
    path: str
    format: FileFormat
    start: Count
    stop: Count
    first_row: Count
    rows: Count
    repeats: dict[str, tuple[int, ...]] = {}
    only_rows: tuple[int, ...] | None = None
    truncated: bool = False
    max_record_bytes: Count = 64 << 20

    @property
    def row_numbers(self) -> tuple[int, ...]:
        """The rows within the file that this piece of work must account for."""
        if self.only_rows is not None:
            return self.only_rows
        return tuple(range(self.first_row, self.first_row + self.rows))

    @property
    def rows_to_do(self) -> int:
        """Number of rows that this piece of work must account for."""
        return self.rows if self.only_rows is None else len(self.only_rows)


class PartFile(Document):
    """A file a shard wrote, with what a reader needs to trust it."""

    name: str
    rows: Count
    sha256: str


class Counters(Document):
    """What became of a shard's or a partition's rows; the conservation law is checked on it.

    `cleaned` counts texts by step, `warned` and `stopped` broken rules as `column:rule` or by
    reason; the rows of `stopped` are quarantined as well.
    """

    rows_read: Count = 0
    rows_scored: Count = 0
    rows_quarantined: Count = 0
    rows_to_review: Count = 0
    windows_made: Count = 0
    windows_aggregated: Count = 0
    texts_inferred: Count = 0
    tokens_inferred: Count = 0
    quarantined_by_reason: dict[str, int] = {}
    cleaned: dict[str, int] = {}
    warned: dict[str, int] = {}
    stopped: dict[str, int] = {}

    def __add__(self, other: Counters) -> Counters:
        """Field-wise sum; mappings are summed by key."""
        total = {}
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                keys = sorted(mine.keys() | theirs.keys())
                total[name] = {key: mine.get(key, 0) + theirs.get(key, 0) for key in keys}
            else:
                total[name] = mine + theirs
        return Counters(**total)


class ShardManifest(Document):
    """Written after a shard's files: the shard is done, and this is what it gave."""

    shard: Shard
    counters: Counters
    scores: PartFile
    quarantine: PartFile


class ModelRef(Document):
    """The exact model that scored: registry name and version, and the bundle's digest."""

    name: str
    version: str
    digest: str

    def address(self, *, local: str) -> str:
        """Where the registry has it; `local` for one that was never registered."""
        return local if self.version == LOCAL_VERSION else f"models:/{self.name}/{self.version}"


class CascadeRef(Document):
    """A smaller model that answers first, and the confidence by head that it must reach."""

    small: ModelRef
    thresholds: dict[str, float]


class Replay(Document):
    """One replay of quarantined rows: where it began, what it took up again, what came of it.

    `reasons` is empty where rows of all reasons were taken up. `rows_scored` of the
    `rows_replayed` left quarantine.
    """

    base: str
    reasons: tuple[Reason, ...] = ()
    rows_replayed: Count
    rows_scored: Count
    config_digest: str
    contract_version: str


class PartitionManifest(Document):
    """The published state of one task's data for one date; readers start here.

    `run` names the folder, beside the manifest, that holds the files. It is derived from
    `fingerprint`, so a rerun over the same input, model and settings has the same one, and nothing
    in here depends on when or where the run was made. `replays`, oldest first, have added rows to
    the run that `config_digest` describes.
    """

    task: str
    date: str
    run: str
    fingerprint: str
    model: ModelRef
    cascade: CascadeRef | None = None
    config_digest: str
    cleaner_version: str
    inputs: tuple[InputFile, ...]
    counters: Counters
    scores: tuple[PartFile, ...]
    quarantine: tuple[PartFile, ...]
    replays: tuple[Replay, ...] = ()

    @property
    def origin(self) -> str:
        """The run that scored the whole partition, before any replay."""
        return self.replays[0].base if self.replays else self.run


class Effort(Document):
    """What a run cost: the driver's seconds, and the workers' seconds on its shards.

    `worker_seconds` is what workers spent on the shards of this run, start-up not counted;
    `seconds` is the driver's whole time from plan to publication. `steps` are the driver's seconds
    by step (`survey`, `start` of Ray, `scoring`, `publish`); what several dates of one job share is
    divided by the work they were. `worker_steps` are the workers' (`text`, `infer`, `write`).
    `shards_kept` were done by an earlier attempt, `texts_remembered` answered from the cache.
    `machines` took part, each at `price_per_hour`.
    """

    seconds: float = 0.0
    shards_scored: Count = 0
    rows_scored: Count = 0
    worker_seconds: float = 0.0
    workers: Count = 0
    shards_kept: Count = 0
    tokens: Count = 0
    worker_peak_mib: Count = 0
    steps: dict[str, float] = {}
    worker_steps: dict[str, float] = {}
    machines: Count = 0
    texts_remembered: Count = 0
    price_per_hour: float | None = None


class Publication(Effort):
    """One line of a partition's `publications.jsonl`: when which run became the current one."""

    run: str
    published_at: str
