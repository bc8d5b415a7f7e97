"""A shard that ended its workers, scored so that only the rows that do it are lost to scoring."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.scoring_child import ChildEnded, ScoringChild
from pipeline.cells import id_text
from pipeline.culprits import find_culprits
from pipeline.flow import Outcome
from pipeline.read import read_shard
from pipeline.rows import RawRow, Rejected
from pipeline.validate import place_of
from schemas.errors import ShardError
from schemas.manifest import Counters
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from pipeline.attempts import Attempts
    from pipeline.culprits import Rows
    from pipeline.flow import ScoringFlow
    from schemas.manifest import Shard
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


def score_carefully(
    build: Callable[[], ScoringFlow],
    shard: Shard,
    date: dt.date,
    *,
    task: TaskConfig,
    attempts: Attempts,
) -> Outcome:
    """The outcome of a shard, the rows that end their process among the rejected ones.

    Once these are known all others are scored together, as they would be had the culprits never
    been there.

    Raises:
        ShardError: no process can be started, or rows end it together though none does alone.
    """
    with closing(ScoringChild(build, task.score)) as child:
        search = _Search(child, shard, date, attempts, task.score.max_attempts)
        culprits = attempts.culprits(task.score.max_attempts)
        while True:
            rest = tuple(row for row in shard.row_numbers if row not in culprits)
            try:
                outcome = search.outcome(rest)
                break
            except ChildEnded as ended:
                log.warning("shard %d: its process %s; looking for the row", shard.index, ended)
            found = find_culprits(rest, search.survives) if rest else ()
            if not found:
                raise ShardError(
                    f"shard {shard.index} ends its process though no row of it does so alone; "
                    f"lower score.rows_per_shard, or raise score.max_worker_mib"
                )
            culprits = (*culprits, *found)
    return _with_culprits(outcome, shard, culprits, id_column=task.data.id_column)


@dataclass(frozen=True)
class _Search:
    """Pieces of one shard given to a child; each answer and each death is a sign of life."""

    child: ScoringChild
    shard: Shard
    date: dt.date
    attempts: Attempts
    tries_alone: int

    def outcome(self, rows: Rows) -> Outcome:
        """What becomes of some rows of the shard."""
        try:
            return self.child.score(_restricted(self.shard, rows), self.date)
        finally:
            self.attempts.alive()

    def survives(self, rows: Rows) -> bool:
        """Whether a process survives these rows; to one row alone every try is given."""
        alone = len(rows) == 1
        for _ in range(self.tries_alone if alone else 1):
            try:
                self.outcome(rows)
            except ChildEnded:
                if alone:
                    self.attempts.ended_alone(rows[0])
            else:
                return True
        return False


def _restricted(shard: Shard, rows: Rows) -> Shard:
    return shard if rows == shard.row_numbers else shard.model_copy(update={"only_rows": rows})


def _with_culprits(
    outcome: Outcome, shard: Shard, culprits: Rows, *, id_column: str | None
) -> Outcome:
    if not culprits:
        return outcome
    found = [_rejected(row, id_column) for row in read_shard(_restricted(shard, culprits))]
    log.warning(
        "rows %s of %s end the process that scores them and are quarantined",
        sorted(culprits), shard.name,
    )  # fmt: skip
    more = Counters(
        rows_read=len(found),
        rows_quarantined=len(found),
        quarantined_by_reason={Reason.ENDS_ITS_WORKER.value: len(found)},
    )
    rejected = sorted([*outcome.rejected, *found], key=lambda row: row.source_row)
    return Outcome(outcome.scored, rejected, outcome.counters + more)


def _rejected(row: RawRow | Rejected, id_column: str | None) -> Rejected:
    name = place_of(row)
    if isinstance(row, RawRow) and id_column is not None:
        name = id_text(row.values.get(id_column)) or name
    return Rejected(
        name,
        row.source_file,
        row.source_row,
        Stage.INFER,
        Reason.ENDS_ITS_WORKER,
        "the process that scores it dies or hangs, also where it stands alone",
        row.raw,
    )
