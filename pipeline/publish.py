"""One partition's published state: reconcile, move into place, manifest last.

Readers who start at `date=D/manifest.json` see the old run or the new one, never a mixture.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.flow import check_conservation
from pipeline.staging import Staging, last_begun
from schemas.errors import ArtifactError, ShardError, TransientError
from schemas.fingerprint import digest_of_file
from schemas.manifest import (
    Counters,
    Effort,
    PartFile,
    PartitionManifest,
    Publication,
    Shard,
    ShardManifest,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from schemas.home import Home

MANIFEST_FILE = "manifest.json"
PUBLICATIONS_FILE = "publications.jsonl"


class Partition:
    """Where one task's data for one date is staged, published and superseded."""

    def __init__(self, home: Home, task: str, date: dt.date) -> None:
        self.task, self.date = task, date
        day = f"date={date.isoformat()}"
        self.scores = home.scores(task) / day
        self.quarantine = home.quarantine(task) / day
        self._superseded = home.superseded(task) / day
        self._staging = home.staging(task) / day
        self.spool = self._staging / "inputs"

    def current(self) -> PartitionManifest | None:
        """The published manifest, None before the first publication.

        Raises:
            ArtifactError: there is one that cannot be read.
        """
        path = self.scores / MANIFEST_FILE
        return PartitionManifest.read(path) if path.exists() else None

    def published(self) -> PartitionManifest:
        """The published manifest.

        Raises:
            ArtifactError: nothing is published, or its manifest cannot be read.
        """
        manifest = self.current()
        if manifest is None:
            raise ArtifactError(
                f"{self.task} {self.date} is not published; "
                f"`nightmill score {self.task} --date {self.date}` does it"
            )
        return manifest

    def intact(self) -> PartitionManifest:
        """The published manifest, once it is sure that all its files are as they were written.

        Raises:
            ArtifactError: nothing is published, or a file is missing or altered; the run counts as
                not complete from then on, so that it can be scored again.
        """
        manifest = self.published()
        name = f"run={manifest.run}"
        for folder, parts in (
            (self.scores / name, manifest.scores),
            (self.quarantine / name, manifest.quarantine),
        ):
            if (path := _damaged(folder, parts)) is not None:
                self.forget(manifest.run)
                raise ArtifactError(
                    f"{path} is missing or altered; `nightmill score {self.task} --date "
                    f"{self.date}` makes it again"
                )
        return manifest

    def quarantine_files(self, manifest: PartitionManifest) -> tuple[Path, ...]:
        """Where the rejected rows of a run lie, also when it was superseded since."""
        folder = self._folder("quarantine", self.quarantine, manifest.run)
        return tuple(folder / part.name for part in manifest.quarantine)

    def scores_files(self, manifest: PartitionManifest) -> tuple[Path, ...]:
        """Where the scored rows of a run lie, also when it was superseded since."""
        folder = self._folder("scores", self.scores, manifest.run)
        return tuple(folder / part.name for part in manifest.scores)

    def _folder(self, kept: str, final: Path, run: str) -> Path:
        published = final / f"run={run}"
        return published if published.exists() else self._superseded / kept / published.name

    def staging(self, run: str) -> Staging:
        """The staging folder of a run."""
        return Staging(self._staging / run)

    def staged(self) -> Staging | None:
        """The staging folder of the run begun last, None where no run waits for publication."""
        runs = {path.parent.name: path.parent for path in self._staging.glob("*/shards")}
        newest = runs.get(last_begun(self._staging)) or max(runs.values(), default=None)
        return None if newest is None else Staging(newest)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps a second driver off this partition; the kernel lets go when the holder dies.

        Raises:
            TransientError: another driver holds it.
        """
        path = self._staging.with_name(self._staging.name + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TransientError(
                    f"{self.task} {self.date}: another run is scoring this partition; try later"
                ) from None
            yield

    def reusable(self, run: str, *, replays: bool = True) -> PartitionManifest | None:
        """The manifest of a run that is complete on disk, published or superseded, else None.

        With `replays` it may be that of a run to which rows were added since: the published one,
        else the one replayed last. What a replay has scored must not be lost because the run
        before it is asked for.
        """
        found = [
            manifest
            for folder in (self.scores, self._superseded / "scores")
            for path in sorted(folder.glob(f"run=*/{MANIFEST_FILE}"))
            if (manifest := _read(path)) is not None
            and run in ({manifest.run, manifest.origin} if replays else {manifest.run})
        ]
        current = self.current()
        return max(found, key=lambda it: (it == current, len(it.replays)), default=None)

    def publish(
        self,
        manifest: PartitionManifest,
        *,
        keep_runs: int,
        effort: Effort | None = None,
    ) -> None:
        """Moves a reconciled run into place and makes it the current one.

        Every step can be repeated, so a run that died in here is finished by the next one.

        Raises:
            ShardError: a file is missing or altered; its shard will be scored again on retry.
            TransientError: the disk is full, or will not have it.
        """
        try:
            self._put(manifest, effort or Effort(), keep_runs=keep_runs)
        except OSError as error:
            raise TransientError(
                f"{self.task} {self.date}: run {manifest.run} is scored, but not published: "
                f"{error}; mend that and run again"
            ) from error

    def _put(self, manifest: PartitionManifest, effort: Effort, *, keep_runs: int) -> None:
        started = time.monotonic()
        staging, name = self.staging(manifest.run), f"run={manifest.run}"
        for staged, kept, final, parts in (
            (staging.quarantine, "quarantine", self.quarantine, manifest.quarantine),
            (staging.scores, "scores", self.scores, manifest.scores),
        ):
            _move(staged, final / name) or _move(self._superseded / kept / name, final / name)
            self._verify(final / name, parts, staging)
            _sweep(final / name)
        manifest.write(self.scores / name / MANIFEST_FILE)
        manifest.write(self.scores / MANIFEST_FILE)
        self._log(manifest.run, effort, publish_s=time.monotonic() - started)
        self._tidy(manifest.run, keep_runs=keep_runs)

    def _verify(self, folder: Path, parts: Sequence[PartFile], staging: Staging) -> None:
        path = _damaged(folder, parts)
        if path is not None:
            staging.forget([part.name for part in parts].index(path.name))
            self.forget(folder.name.removeprefix("run="))
            raise ShardError(f"{path} is missing or altered; run again to score its shard")

    def forget(self, run: str) -> None:
        """Makes a damaged run count as not complete, or each retry would reuse it and fail."""
        for scores in (self.scores, self._superseded / "scores"):
            (scores / f"run={run}" / MANIFEST_FILE).unlink(missing_ok=True)

    def settle(self, *, keep_runs: int) -> None:
        """Ends a publication that died after its manifest: readers' globs find one run only."""
        if (manifest := self.current()) is None:
            return
        if [line.run for line in self.publications()][-1:] != [manifest.run]:
            self._log(manifest.run, Effort(), publish_s=0.0)
        self._tidy(manifest.run, keep_runs=keep_runs)

    def _tidy(self, run: str, *, keep_runs: int) -> None:
        self._supersede_others(run, keep_runs=keep_runs)
        _sweep(self.scores)
        shutil.rmtree(self._staging, ignore_errors=True)

    def _log(self, run: str, effort: Effort, *, publish_s: float) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        spent = effort.model_dump()
        spent["steps"] = effort.steps | {"publish": round(publish_s, 3)}
        line = Publication(run=run, published_at=now, **spent)
        # Written anew and not appended to: a full disk must not leave half a line.
        path = self.scores / PUBLICATIONS_FILE
        before = path.read_bytes() if path.exists() else b""
        write_atomically(path, before + line.model_dump_json().encode() + b"\n")

    def publications(self) -> tuple[Publication, ...]:
        """When which run became the current one, oldest first."""
        path = self.scores / PUBLICATIONS_FILE
        if not path.exists():
            return ()
        lines = path.read_text(encoding="utf-8").splitlines()
        return tuple(Publication.model_validate_json(line) for line in lines)

    def _supersede_others(self, run: str, *, keep_runs: int) -> None:
        """Takes older runs out of readers' globs, and keeps the `keep_runs` that were current last.

        Which these are the log of publications says: a clock may have been set back since.
        """
        order = {line.run: place for place, line in enumerate(self.publications())}
        for kept, final in (("scores", self.scores), ("quarantine", self.quarantine)):
            target = self._superseded / kept
            for folder in final.glob("run=*"):
                if folder.name != f"run={run}":
                    _move(folder, target / folder.name)
            old = sorted(
                target.glob("run=*"),
                key=lambda path: (order.get(path.name.removeprefix("run="), -1), path.name),
            )
            for folder in old[: max(0, len(old) - keep_runs)]:
                shutil.rmtree(folder)


def reconcile(shards: Sequence[Shard], done: dict[int, ShardManifest], *, what: str) -> Counters:
    """Counters of all shards of a run, after making sure that every row is accounted for.

    Raises:
        ShardError: a shard is missing, or rows are not all scored or quarantined.
    """
    missing = [shard.index for shard in shards if shard.index not in done]
    if missing:
        raise ShardError(f"{what}: shards {missing[:10]} of {len(shards)} are not done; run again")
    total = sum((done[shard.index].counters for shard in shards), start=Counters())
    check_conservation(total, what=what)
    expected = sum(shard.rows_to_do for shard in shards)
    written = sum(done[shard.index].scores.rows for shard in shards)
    rejected = sum(done[shard.index].quarantine.rows for shard in shards)
    if not total.rows_read == expected == written + rejected:
        raise ShardError(
            f"{what}: the survey counted {expected} rows, {total.rows_read} were read, "
            f"{written} + {rejected} written"
        )
    return total


def _read(path: Path) -> PartitionManifest | None:
    try:
        return PartitionManifest.read(path)
    except ArtifactError:
        return None


def _damaged(folder: Path, parts: Sequence[PartFile]) -> Path | None:
    """The first file that is missing or altered, None if all are as their manifest says."""
    for part in parts:
        path = folder / part.name
        if not path.is_file() or digest_of_file(path) != part.sha256:
            return path
    return None


def _move(source: Path, target: Path) -> bool:
    """Moves a folder if it is there; files of a target left by a run that died are replaced."""
    if not source.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        source.rename(target)
        return True
    for path in source.iterdir():
        path.replace(target / path.name)
        path.unlink(missing_ok=True)  # of two links to one file, a rename leaves both
    source.rmdir()
    return True


def _sweep(folder: Path) -> None:
    """Removes what a process that was killed left of a file it was writing."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
