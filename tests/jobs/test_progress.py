"""What is said of a run on its way."""

from __future__ import annotations

import logging

import pytest

from jobs.progress import Progress
from schemas.manifest import Counters

SHARD = Counters(rows_read=100, rows_scored=97, rows_quarantined=3, tokens_inferred=6000)


class Hands:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hands:
    return Hands()


def test_a_line_has_done_and_total_rates_rejected_and_time_left(clock):
    progress = Progress(rows=1000, shards=10, clock=clock)
    clock.now = 2.0
    progress.add(SHARD)
    progress.add(SHARD)
    assert progress.line() == (
        "200 of 1000 rows, 2 of 10 shards, 100 rows/s, 6000 tokens/s, 6 quarantined, 8 s left"
    )


def test_time_left_is_told_in_the_unit_that_people_use(clock):
    progress = Progress(rows=1_000_000, shards=10_000, clock=clock)
    clock.now = 1.0
    progress.add(SHARD)
    assert progress.line().endswith(", 2 h 47 min left")
    clock.now = 0.1
    assert progress.line().endswith(", 17 min left")


def test_a_failed_shard_is_neither_done_nor_forgotten(clock):
    progress = Progress(rows=200, shards=2, clock=clock)
    clock.now = 1.0
    progress.add(SHARD)
    progress.add(Counters())
    assert "100 of 200 rows, 1 of 2 shards" in progress.line()
    assert "1 shards failed" in progress.line()


def test_before_the_first_shard_no_time_is_promised(clock):
    assert "left" not in Progress(rows=200, shards=2, clock=clock).line()


def test_a_log_gets_a_line_every_few_seconds_and_one_at_the_end(clock, caplog):
    told = []
    with caplog.at_level(logging.INFO):
        progress = Progress(rows=400, shards=4, clock=clock, tell=lambda: told.append(clock.now))
        for now in (1.0, 5.5, 6.0, 11.0):
            clock.now = now
            progress.add(SHARD)
        progress.close()
    lines = [record.getMessage().split(",")[0] for record in caplog.records]
    assert lines == ["200 of 400 rows", "400 of 400 rows"]
    assert told == [5.5, 11.0, 11.0]


def test_a_terminal_gets_a_bar_and_the_sum(clock, caplog, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with caplog.at_level(logging.INFO):
        progress = Progress(rows=100, shards=1, clock=clock)
        clock.now = 60.0
        progress.add(SHARD)
        assert caplog.records == []  # a line in between would tear the bar
        progress.close()
    assert [record.getMessage() for record in caplog.records] == [
        "100 of 100 rows, 1 of 1 shards, 2 rows/s, 100 tokens/s, 3 quarantined"
    ]
    assert "scoring" in capsys.readouterr().err
