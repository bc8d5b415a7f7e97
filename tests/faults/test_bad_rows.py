"""Rows that kill or silence whole workers, on Ray as in a night."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.home import Home

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]


def rows(home: Home, folder: str) -> dict[str, dict[str, Any]]:
    """Published rows by id, without the name of their run."""
    return {
        row["record_id"]: row | {"run_id": ""}
        for path in sorted(getattr(home, folder)("tiny").rglob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    }


def test_failure_01_rows_that_kill_their_worker_are_quarantined_and_no_other_row_changes(
    make_home: Callable[..., Home], start_job: Callable[..., Any], undisturbed: Home
) -> None:
    """One crashes its process, one takes all memory it can get; both in a night of 30 shards."""
    home = make_home(max_worker_mib=1500)
    job = start_job(home, segfault=["t6"], exhaust=["t61"])
    assert job.end(timeout_s=600) == 0, job.log

    expected = rows(undisturbed, "scores")
    del expected["t6"], expected["t61"]
    assert rows(home, "scores") == expected
    quarantined = rows(home, "quarantine")
    found = {name for name, row in quarantined.items() if row["reason"] == "ends_its_worker"}
    assert found == {"t6", "t61"}
    assert {quarantined[name]["stage"] for name in found} == {"infer"}
    assert json.loads(quarantined["t6"]["raw"])["ticket_id"] == "t6"
    assert list(home.staging("tiny").glob("date=*/*")) == []


def test_failure_04_a_worker_that_hangs_fails_the_job_and_keeps_what_is_done(
    make_home: Callable[..., Home],
    start_job: Callable[..., Any],
    undisturbed: Home,
    digests: Callable[[Home], dict[str, str]],
) -> None:
    home = make_home(no_progress_timeout_s=60)
    job = start_job(home, hang=["t6"])
    assert job.end(timeout_s=600) == 5
    assert (
        "no shard was done for 60 s (score.no_progress_timeout_s; begun and not done: shard 00001"
        in job.log
    )
    done = job.shards_done()
    assert 27 <= done <= 29  # one or two were waiting behind the one that hangs
    job = start_job(home)  # what hung was not the row's doing
    assert job.end() == 0, job.log
    assert f"{done} shards are already done, {30 - done} to do" in job.log
    assert digests(home) == digests(undisturbed)
