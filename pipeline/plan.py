"""What a run over one partition will do: its inputs, its shards, and the name it must have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.survey import Survey, find_inputs, survey
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of
from schemas.manifest import Counters, ModelRef, PartFile, PartitionManifest, ShardManifest

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from schemas.home import Home
    from schemas.manifest import CascadeRef
    from schemas.task import TaskConfig

OUTPUT_VERSION = 2  # raise it when the same input and model would give other bytes
_SCORING_SECTIONS = ("data", "contract", "clean", "quarantine", "heads", "window")


@dataclass(frozen=True)
class Plan:
    """A partition's run before it starts; equal fingerprints mean equal bytes."""

    task: TaskConfig
    date: dt.date
    survey: Survey
    model: ModelRef
    cleaner_version: str
    cascade: CascadeRef | None = None

    @property
    def config_digest(self) -> str:
        """Hash over the settings that can change a byte of the output."""
        settings = self.task.model_dump(mode="json", include=set(_SCORING_SECTIONS))
        # Where files lie does not change what is in them.
        for key in ("incoming", "labelled", "test", "outcomes"):
            del settings["data"][key]
        score = self.task.score
        # A GPU's kernels, and with them the low bits of a score, follow the shape of a batch.
        batches = [score.device, score.max_batch_tokens] if score.device == "gpu" else []
        return digest_of([settings, score.rows_per_shard, *batches])

    @property
    def fingerprint(self) -> str:
        """Hash over input bytes, model, settings and the version of what is written."""
        cascade = {"cascade": self.cascade.model_dump()} if self.cascade else {}
        return digest_of(
            {
                "task": self.task.name,
                "date": self.date.isoformat(),
                "inputs": [[file.name, file.sha256] for file in self.survey.inputs],
                "model": self.model.model_dump(),
                "config": self.config_digest,
                "cleaner": self.cleaner_version,
                "output": OUTPUT_VERSION,
                **cascade,
            }
        )

    @property
    def run(self) -> str:
        """Name of the run's folder, and `run_id` in every row."""
        return self.fingerprint[:16]

    def manifest(self, done: dict[int, ShardManifest], counters: Counters) -> PartitionManifest:
        """The partition's manifest once all shards are done."""
        parts: tuple[tuple[PartFile, PartFile], ...] = tuple(
            (done[shard.index].scores, done[shard.index].quarantine) for shard in self.survey.shards
        )
        return PartitionManifest(
            task=self.task.name,
            date=self.date.isoformat(),
            run=self.run,
            fingerprint=self.fingerprint,
            model=self.model,
            cascade=self.cascade,
            config_digest=self.config_digest,
            cleaner_version=self.cleaner_version,
            inputs=self.survey.inputs,
            counters=counters,
            scores=tuple(scores for scores, _ in parts),
            quarantine=tuple(quarantine for _, quarantine in parts),
        )


def plan_partition(
    task: TaskConfig,
    date: dt.date,
    *,
    home: Home,
    model: ModelRef,
    cleaner_version: str,
    spool: Path,
    cascade: CascadeRef | None = None,
) -> Plan:
    """Surveys a partition's input.

    Raises:
        DataContractError: there is no input, it cannot be read, or it has too few rows.
    """
    paths = find_inputs(task.data.incoming, home, date=date)
    found = survey(
        paths,
        data=task.data,
        home=home,
        rows_per_shard=task.score.rows_per_shard,
        spool=spool,
        unique_columns=task.contract.unique_columns,
    )
    rows = sum(file.rows for file in found.inputs)
    if rows < task.contract.min_rows:
        raise DataContractError(
            f"{task.name} {date}: {rows} rows in {len(found.inputs)} files, expected at least "
            f"{task.contract.min_rows}; set contract.min_rows=0 if quiet days are normal"
        )
    return Plan(task, date, found, model, cleaner_version, cascade)
