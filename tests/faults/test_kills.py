"""kill -9 of any process at any moment, run again: the bytes of a night that was left in peace.

The short form kills each kind of process once; SOAK_RUNS=100 (`make soak`) goes on with that.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from schemas.errors import RETRYABLE_EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.home import Home

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TARGETS = ("actor", "raylet", "driver", "session")
RUNS = int(os.environ.get("SOAK_RUNS", len(TARGETS)))
SHARDS, ROWS, RERUNS = 30, 120, 3


def victims(job: Any, target: str, chance: random.Random) -> list[int]:
    """Ids of the processes to kill; none where there is no such process yet."""
    processes = job.processes()
    if target == "driver":
        return [job.process.pid]
    if target == "session":
        return [pid for pid, _ in processes]
    mark = {"actor": "ray::MapWorker", "raylet": "/raylet/raylet "}[target]
    found = sorted(pid for pid, command in processes if mark in command)
    return [chance.choice(found)] if found else []


def kill_at_a_moment(job: Any, target: str, chance: random.Random) -> bool:
    """Kills once so many shards are done; False where the job was done before."""
    shards = chance.randrange(SHARDS)
    if not job.wait_for(lambda: job.shards_done() >= shards and victims(job, target, chance) != []):
        return False
    with contextlib.suppress(Exception):
        job.process.wait(chance.uniform(0, 0.3))
    for pid in victims(job, target, chance):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def scored_and_rejected(home: Home) -> list[int]:
    """Row numbers of the night in all published files."""
    files = [
        path
        for folder in (home.scores("tiny"), home.quarantine("tiny"))
        for path in folder.rglob("*.parquet")
    ]
    return [row for file in files for row in pq.read_table(file)["source_row"].to_pylist()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", range(RUNS))
def test_failure_06_07_08_a_kill_and_a_rerun_lose_and_double_nothing(
    run: int,
    make_home: Callable[..., Home],
    start_job: Callable[..., Any],
    undisturbed: Home,
    digests: Callable[[Home], dict[str, str]],
) -> None:
    chance, target = random.Random(run), TARGETS[run % len(TARGETS)]
    home = make_home()
    job = start_job(home, slow_s=0.03)
    was_killed = kill_at_a_moment(job, target, chance)
    code = job.process.wait(240)
    if target == "actor":
        assert code == 0, job.log  # Ray gives its shard to another one
    elif was_killed:
        expected = RETRYABLE_EXIT_CODES if target == "raylet" else {-signal.SIGKILL}
        assert code in expected, job.log
    last = job
    for _ in range(RERUNS):
        if code == 0:
            break
        # At once, as a scheduler would: what is left of the killed one takes up to a minute to go.
        last = start_job(home)
        code = last.end()
    assert code == 0, last.log
    job.end()

    assert digests(home) == digests(undisturbed)
    # The anti-join of input and output is empty on both sides, and nothing is there twice.
    assert sorted(scored_and_rejected(home)) == list(range(ROWS))
    left = {path.name for path in home.staging("tiny").rglob("*")}
    assert left == {"date=2026-11-28.lock"}
    assert list(home.root.rglob("*.tmp")) == []
