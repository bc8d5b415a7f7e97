"""Shards over Ray Data: descriptors of a few hundred bytes go out, shard manifests come back."""

from __future__ import annotations

import datetime as dt
import logging
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from jobs.careful import score_carefully
from jobs.logs import bound, configure_worker_logging
from jobs.memory_limit import end_process, memory_limit, resident_mib
from jobs.spent import shard_figures
from jobs.watchdog import watched
from pipeline.bundle import scoring_flow
from pipeline.cascade import NO_SAVING, Saving
from pipeline.read import read_shard
from pipeline.staging import Staging, check_each_row_once
from pipeline.step_clock import StepClock
from pipeline.tables import Lineage, quarantine_table, scores_table
from schemas.errors import NightmillError, ShardError
from schemas.manifest import ModelRef, Shard, ShardManifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.attempts import Attempts
    from pipeline.flow import Outcome
    from schemas.task import TaskConfig

# Workers may die while they load the model, as where a machine is lost; not one after the other.
_MAX_DEATHS_WHILE_LOADING = 10
_PAUSE_S = 1.0  # before a file that could not be read or written is tried again
_MANY_SHARDS = 8  # for each worker: then it does not matter which one is ready first
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardTask:
    """One shard to score: where it is read from, where it goes, whose rows they are."""

    shard: Shard
    staging: Path
    date: dt.date
    run: str

    def to_row(self) -> dict[str, Any]:
        """The descriptor as Ray Data carries it."""
        return {
            "shard": self.shard.model_dump_json(),
            "staging": str(self.staging),
            "date": self.date.isoformat(),
            "run": self.run,
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> ShardTask:
        """The descriptor as a worker wants it."""
        return cls(
            Shard.model_validate_json(row["shard"]),
            Path(row["staging"]),
            dt.date.fromisoformat(row["date"]),
            row["run"],
        )


class ShardWorker:
    """A long-lived actor: session and tokenizer are built once, each call runs a whole shard.

    A shard leaves a mark before it is scored. Where the worker dies Ray gives the shard to another
    one, which learns from the mark how often that has been, and from `score.max_attempts` times on
    lets a child process die in its place.
    """

    def __init__(
        self,
        bundle: Path,
        task: TaskConfig,
        model: ModelRef,
        cleaner_version: str,
        saving: Saving = NO_SAVING,
        plans: Path | None = None,
    ) -> None:
        configure_worker_logging("score")
        self._build = partial(scoring_flow, bundle, task, threads=1, plans=plans, saving=saving)
        self._flow = self._build()
        self._task = task
        self._model = model
        self._cleaner_version = cleaner_version
        self._own_mib = 0 if task.score.max_worker_mib is None else resident_mib()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Scores one shard into staging; answers its manifest, or what went wrong with it."""
        work = ShardTask.from_row(row)
        answer = {"run": work.run, "index": work.shard.index, "manifest": "", "error": ""}
        clock, self._remembered = StepClock(), 0
        try:
            with bound(task=self._task.name, date=work.date, run=work.run, shard=work.shard.index):
                answer["manifest"] = self.score(work, clock).model_dump_json()
        except Exception as error:  # noqa: BLE001 - one shard's failure must not end the others
            answer["error"] = f"{type(error).__name__}: {error}"
        return answer | shard_figures(clock, texts_remembered=self._remembered)

    def score(self, work: ShardTask, clock: StepClock) -> ShardManifest:
        """Scores one shard.

        Raises:
            ShardError: it cannot be scored, or ended its workers whatever was done.
            OSError: its file could not be read, or its output not be written, time after time.
        """
        attempts = Staging(work.staging).attempts(work.shard.index)
        ended = attempts.begin()
        try:
            manifest = self._with_retries(work, clock, attempts, ended)
        except MemoryError:
            end_process()  # a worker that starts anew has all its memory again
            raise
        except Exception:
            attempts.returned()
            raise
        attempts.clear()
        return manifest

    def _with_retries(
        self, work: ShardTask, clock: StepClock, attempts: Attempts, ended: int
    ) -> ShardManifest:
        """Scores a shard; where files cannot be read or written, again after a pause."""
        tries = 0
        while True:
            try:
                outcome = self._outcome(work, clock, attempts, ended)
                clock.lap("infer")
                self._remembered = outcome.texts_remembered
                manifest = self._write(work, outcome)
                clock.lap("write")
                return manifest
            except OSError:
                tries += 1
                if tries == self._task.score.max_attempts:
                    raise
                log.warning("shard %d failed, once more", work.shard.index, exc_info=True)
                time.sleep(_PAUSE_S)

    def _outcome(
        self, work: ShardTask, clock: StepClock, attempts: Attempts, ended: int
    ) -> Outcome:
        score = self._task.score
        if ended >= 2 * score.max_attempts:
            attempts.clear()
            raise ShardError(f"shard {work.shard.index} ended its worker {ended} times; run again")
        if ended >= score.max_attempts:
            return score_carefully(
                self._build, work.shard, work.date, task=self._task, attempts=attempts
            )
        if score.max_worker_mib is not None and self._own_mib >= score.max_worker_mib:
            raise ShardError(
                f"a worker holds {self._own_mib} MiB before its first row, "
                f"score.max_worker_mib is {score.max_worker_mib}; raise it"
            )
        with memory_limit(score.max_worker_mib):
            rows = clock.until_read(read_shard(work.shard), "text")
            return self._flow.score(rows, date=work.date)

    def _write(self, work: ShardTask, outcome: Outcome) -> ShardManifest:
        lineage = Lineage(work.date, self._model, self._cleaner_version, work.run)
        scores = scores_table(outcome.scored, self._task.heads, lineage)
        quarantine = quarantine_table(
            outcome.rejected,
            policy=self._task.quarantine,
            contract_version=self._task.contract_version,
        )
        check_each_row_once(work.shard, scores, quarantine)
        return Staging(work.staging).write(
            work.shard, scores=scores, quarantine=quarantine, counters=outcome.counters
        )


def score_shards(
    work: Sequence[ShardTask],
    *,
    bundle: Path,
    task: TaskConfig,
    model: ModelRef,
    cleaner_version: str,
    workers: int,
    saving: Saving = NO_SAVING,
    plans: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Results of `ShardWorker` for each shard, as they finish, in no order.

    Raises:
        ShardError: no progress for `score.no_progress_timeout_s`, or Ray lost the job; finished
            shards are kept.
    """
    context = ray.data.DataContext.get_current()
    context.use_datasource_v2 = False  # V2 ignores override_num_blocks: one block, one actor
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # ours sees signs of life within a shard, too
    _keep_to_its_file(logging.getLogger("ray.data"))
    context.max_consecutive_actor_init_deaths = _MAX_DEATHS_WHILE_LOADING
    dataset = ray.data.from_items(
        [item.to_row() for item in work], override_num_blocks=len(work)
    ).map(
        ShardWorker,
        fn_constructor_args=(bundle, task, model, cleaner_version, saving, plans),
        compute=ray.data.ActorPoolStrategy(
            size=min(workers, len(work)),
            max_tasks_in_flight_per_actor=_shards_at_hand(len(work), workers),
        ),
        num_cpus=1,
        num_gpus=1 if task.score.device == "gpu" else None,
    )
    try:
        yield from watched(
            dataset.iter_rows(),
            timeout_s=task.score.no_progress_timeout_s,
            signs_of_life=partial(_signs_of_life, tuple({item.staging for item in work})),
            check=_check_node,
        )
    except NightmillError:
        raise
    except Exception as error:
        raise ShardError(
            f"Ray stopped before all {len(work)} shards were done ({type(error).__name__}: "
            f"{str(error)[:500]}); finished shards are kept, run again"
        ) from error


def _shards_at_hand(shards: int, workers: int) -> int:
    """How many shards a worker may hold: the one it scores and, in a long night, the next.

    Without a next one it waits a tenth of a second for the driver each time. In a short night the
    first worker to be ready would take two, and another none.
    """
    return 2 if shards >= _MANY_SHARDS * workers else 1


def _keep_to_its_file(logger: logging.Logger) -> None:
    """Only errors on the terminal, where Ray Data tells of each start and end in its own form."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)


def _signs_of_life(folders: Sequence[Path]) -> dict[str, int]:
    signs = {}
    for folder in folders:
        for name, size in Staging(folder).signs_of_life().items():
            signs[f"shard {name} in {folder}"] = size
    return signs


def _check_node() -> None:
    """Makes sure that what this process has started of Ray is there.

    Ray itself ends this process with code 1, ten seconds after its node has gone: a retry would
    look like no use.

    Raises:
        ShardError: a process of the node is dead.
    """
    node = ray._private.worker._global_node  # there is no public name for it
    dead = [] if node is None else [kind for kind, _ in node.dead_processes()]
    if "raylet" in dead or "gcs_server" in dead:
        raise ShardError(
            f"Ray's node died ({', '.join(dead)}), as where memory is short or the machine is shut "
            f"down; finished shards are kept, run again"
        )
