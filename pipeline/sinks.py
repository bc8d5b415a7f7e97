"""Published nights at other places: copied after the local publication, which stays the truth.

Every step can be repeated and is left out where it is already done, so that whoever runs the same
date again, if only to learn that nothing is to be scored, finishes a copy that was cut short.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.engines.object_store import open_store
from pipeline.publish import MANIFEST_FILE
from schemas.errors import ConfigError, NightmillError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.engines.object_store import ObjectStore
    from pipeline.publish import Partition
    from schemas.home import Home
    from schemas.manifest import PartFile, PartitionManifest
    from schemas.task import SinkConfig, TaskConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalNight:
    """A partition's current run as it lies in the home."""

    partition: Partition
    manifest: PartitionManifest

    @property
    def name(self) -> str:
        """Task and date."""
        return f"{self.partition.task} {self.partition.date}"

    @property
    def score_files(self) -> tuple[Path, ...]:
        """The run's files of scored rows, in the order of their shards."""
        folder = self.partition.scores / f"run={self.manifest.run}"
        return tuple(folder / part.name for part in self.manifest.scores)

    def runs(self) -> tuple[str, ...]:
        """Every run that was published for the date, newest first."""
        logged = [line.run for line in self.partition.publications()]
        # A driver that died behind its manifest has not logged the run.
        return tuple(dict.fromkeys([self.manifest.run, *reversed(logged)]))


class Sink(Protocol):
    """One more place for published nights."""

    def put(self, night: LocalNight) -> bool:
        """Makes a night's run the current one there; False where it already was."""


def mirror(
    task: TaskConfig, partition: Partition, manifest: PartitionManifest, *, home: Home
) -> None:
    """Copies a published run to all sinks of the task; one that fails does not stop the others.

    Raises:
        ConfigError: a sink's address, credentials or table are wrong.
        TransientError: a sink cannot be reached now; the next run of the date goes on from there.
    """
    night = LocalNight(partition, manifest)
    errors: list[NightmillError] = []
    for config in task.score.sinks:
        try:
            if _open(config, task, home).put(night):
                log.info(
                    "%s: run %s copied to %s %s",
                    night.name, manifest.run, config.format, config.location,
                )  # fmt: skip
        except NightmillError as error:
            log.warning(
                "%s: run %s is published here, but not at %s: %s",
                night.name, manifest.run, config.location, error,
            )  # fmt: skip
            errors.append(error)
    # What a retry can finish is the outcome: it will meet the others again.
    for failure in sorted(errors, key=lambda failure: not failure.retryable):
        raise failure


def _open(config: SinkConfig, task: TaskConfig, home: Home) -> Sink:
    if config.format == "delta":
        from pipeline.engines.delta_table import DeltaSink  # noqa: PLC0415 - an optional package

        return DeltaSink(config.location, task.heads, resolve=home.resolve)
    if "://" not in config.location and home.resolve(config.location) == home.root.absolute():
        raise ConfigError(f"sink {config.location}: this is the home itself; name another folder")
    return ParquetSink(
        open_store(config.location, resolve=home.resolve), keep_runs=task.score.keep_runs
    )


class ParquetSink:
    """The home's own layout below a folder or prefix: readers start at `manifest.json`.

    `scores/TASK/date=D/manifest.json` names the run; `run=RUN/` beside it, and in `quarantine/`,
    holds the files. Files come first and the manifest last, in one write, so that a reader sees
    the old night or the new one. Runs that were published before stay where they are, `keep_runs`
    of them, for readers that hold an old manifest.
    """

    def __init__(self, store: ObjectStore, *, keep_runs: int) -> None:
        self._store = store
        self._keep_runs = keep_runs

    def put(self, night: LocalNight) -> bool:
        """Copies what is missing, then the manifest, then removes runs that are too old."""
        content = (night.partition.scores / MANIFEST_FILE).read_bytes()
        scores, quarantine = _folders(night)
        run = f"run={night.manifest.run}"
        is_complete = self._store.read(f"{scores}/{run}/{MANIFEST_FILE}") == content
        there = self._store.sizes(scores) | self._store.sizes(quarantine)
        for key, path in _files(night):
            # Without its manifest a run may have been cut off in the middle of any file.
            if not is_complete or there.get(key) != path.stat().st_size:
                self._store.put(key, path)
        if not is_complete:
            self._store.write(f"{scores}/{run}/{MANIFEST_FILE}", content)
        is_current = self._store.read(f"{scores}/{MANIFEST_FILE}") == content
        if not is_current:
            self._store.write(f"{scores}/{MANIFEST_FILE}", content)
        # Only what this home has published: another one's run may be on its way.
        for old in night.runs()[1 + self._keep_runs :]:
            for folder in (f"{scores}/run={old}", f"{quarantine}/run={old}"):
                if any(key.startswith(f"{folder}/") for key in there):
                    self._store.remove(folder)
        return not is_current


def _folders(night: LocalNight) -> tuple[str, str]:
    """The keys of a date's scores and quarantine."""
    place = f"{night.partition.task}/date={night.partition.date.isoformat()}"
    return f"scores/{place}", f"quarantine/{place}"


def _files(night: LocalNight) -> Iterator[tuple[str, Path]]:
    """Key and local path of every file of a run."""
    manifest, partition = night.manifest, night.partition
    run = f"run={manifest.run}"
    scores, quarantine = _folders(night)
    sides: tuple[tuple[str, Path, tuple[PartFile, ...]], ...] = (
        (quarantine, partition.quarantine, manifest.quarantine),
        (scores, partition.scores, manifest.scores),
    )
    for key, folder, parts in sides:
        for part in parts:
            yield f"{key}/{run}/{part.name}", folder / run / part.name
