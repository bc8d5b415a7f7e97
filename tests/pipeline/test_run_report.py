"""What a run cost, in figures."""

from __future__ import annotations

import pytest

from pipeline.run_report import (
    cost_per_1000_rows,
    describe_effort,
    rows_per_s,
    tokens_per_s,
)
from schemas.manifest import Effort

EFFORT = Effort(
    seconds=36.0,
    shards_scored=4,
    rows_scored=4000,
    worker_seconds=40.0,
    workers=2,
    shards_kept=1,
    texts_remembered=7,
    tokens=300_000,
    worker_peak_mib=512,
    steps={"survey": 1.0, "start": 9.0, "scoring": 25.0, "publish": 1.0},
    worker_steps={"text": 4.0, "infer": 35.0, "write": 1.0},
    machines=2,
    price_per_hour=0.5,
)


def test_rates_are_those_of_all_workers_while_they_worked():
    assert rows_per_s(EFFORT) == pytest.approx(200.0)
    assert tokens_per_s(EFFORT) == pytest.approx(15_000.0)


def test_cost_counts_every_machine_for_all_its_seconds():
    # 36 s on two machines at 0.5 an hour are 0.01 for 4,000 rows.
    assert cost_per_1000_rows(EFFORT) == pytest.approx(0.0025)
    assert cost_per_1000_rows(EFFORT.model_copy(update={"price_per_hour": None})) is None
    assert cost_per_1000_rows(Effort(price_per_hour=1.0, machines=1)) is None


def test_a_run_of_old_knows_the_sum_of_its_seconds_only():
    old = EFFORT.model_copy(update={"steps": {}, "machines": 1})
    assert cost_per_1000_rows(old) == pytest.approx(0.00125)


def test_a_line_says_what_people_ask_for():
    assert describe_effort(EFFORT) == (
        "4000 rows in 36.0 s (survey 1.0 s, start 9.0 s, scoring 25.0 s, publish 1.0 s), "
        "200 rows/s and 15000 tokens/s of 2 workers (text 4.0 s, infer 35.0 s, write 1.0 s), "
        "at most 512 MiB a worker, 1 shards were done before, "
        "7 texts were remembered, 0.0025 per 1,000 rows"
    )


def test_nothing_to_score_is_said_and_divides_by_nothing():
    assert describe_effort(Effort(seconds=1.25)) == "nothing to score, 1.2 s"
    assert rows_per_s(Effort()) == tokens_per_s(Effort()) == 0.0
