from __future__ import annotations

import asyncio
import threading

import pytest

from dags.operators.lease import Lease
from dags.operators.ray_cluster import ClusterAwayError, RayJob
from dags.operators.watch import LogTail, Watch


def passed_on(connections):
    """Lines that come through when the log is read once for each list of chunks."""
    left = list(connections)

    async def chunks():
        for chunk in left.pop(0) if left else []:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if not left:
            tail.end_with_job()

    lines = []
    with LogTail(chunks) as tail:
        tail.pass_on(lines.append, for_s=30)
    return lines


def test_lines_come_whole_however_they_are_cut():
    assert passed_on([["one\ntw", "o\n", "\nthr", "ee"]]) == ["one", "two", "", "three"]


def test_broken_connection_is_made_anew_and_repeats_nothing(monkeypatch):
    monkeypatch.setattr("dags.operators.watch._TAIL_AGAIN_S", 0.01)
    broken = [["one\ntw", RuntimeError("closed")], [RuntimeError("still")]]
    assert passed_on([*broken, ["one\n", "two\nthree\n"]]) == ["one", "two", "three"]


def test_passing_on_ends_in_time_where_the_log_is_silent():
    forever = threading.Event()

    async def silent():
        await asyncio.to_thread(forever.wait, 30)
        yield "late\n"

    lines = []
    with LogTail(silent) as tail:
        tail.pass_on(lines.append, for_s=0.05)
    forever.set()
    assert lines == []


@pytest.fixture
def lease(tmp_path):
    lease = Lease(tmp_path / "lease.json", owner="a", lease_s=0)
    lease.take()
    return lease


def test_each_look_renews_the_lease_also_while_the_cluster_is_away(cluster, lease):
    cluster.away = True
    watch = Watch(cluster, "x", lease=lease, away_s=60)
    contents = {lease.file.read_bytes()}
    for _ in range(3):
        assert watch.look() is None
        contents.add(lease.file.read_bytes())
    assert len(contents) == 4


def test_absences_are_not_added_up(cluster, lease):
    cluster.jobs["x"] = RayJob("RUNNING")
    watch = Watch(cluster, "x", lease=lease, away_s=0.2)
    for _ in range(3):
        cluster.away = True
        assert watch.look() is None
        threading.Event().wait(0.1)
        cluster.away = False
        assert watch.look() == RayJob("RUNNING")

    cluster.away = True
    assert watch.look() is None
    threading.Event().wait(0.25)
    with pytest.raises(ClusterAwayError, match="does not answer"):
        watch.look()


def test_job_that_the_cluster_forgot_is_lost(cluster, lease):
    with pytest.raises(ClusterAwayError, match="does not know job x any more"):
        Watch(cluster, "x", lease=lease, away_s=60).look()
