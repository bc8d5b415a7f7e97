"""Rows a second, hours and price from what was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pipeline.bundle import fitting_text_flow
from pipeline.forecast import Forecast, Texts, profiled_texts, sampled_texts
from pipeline.survey import find_inputs, survey
from schemas.profiles import Distribution, PartitionStatistics, TextStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home
    from schemas.task import TaskConfig

TEXTS = Texts(rows=1_000_000, tokens_per_row=93.0, tokens_per_window=46.5, source="here")


def test_a_night_is_rows_by_speed_and_what_it_costs_to_begin() -> None:
    found = Forecast(TEXTS, workers=4, engine_tokens_per_s=5000.0, fixed_s=20.0, price_per_hour=0.5)
    assert found.rows_per_s == pytest.approx(0.93 * 5000 * 4 / 93)  # 200
    assert found.hours == pytest.approx(5020 / 3600)
    assert found.cost == pytest.approx(0.5 * 5020 / 3600)


def test_a_machine_without_a_price_costs_nothing_that_is_known() -> None:
    assert Forecast(TEXTS, workers=1, engine_tokens_per_s=1.0, fixed_s=0.0).cost is None


def profile(tokenized: int) -> PartitionStatistics:
    text = TextStatistics(
        tokenized=tokenized, tokens=Distribution(mean=300.0), windows=Distribution(mean=1.5)
    )
    return PartitionStatistics(
        task="tiny", date="2026-11-28", contract_version="c", rows=70, rejected=3, text=text
    )


def test_a_profile_tells_how_long_texts_are() -> None:
    expected = Texts(70, 300.0, 200.0, "profile of 2026-11-28, 50 texts")
    assert profiled_texts(profile(50)) == expected
    assert profiled_texts(profile(0)) is None


def test_a_sample_is_taken_all_over_the_partition(
    home: Home, tiny_task: TaskConfig, tiny_bundle: Path, tmp_path: Path
) -> None:
    path = home.root / "incoming" / "a.jsonl"
    path.parent.mkdir()
    # Ten shards of ten rows; the later ones are longer: a window of 6 tokens, then of 9.
    lines = [
        {"ticket_id": f"t{n}", "subject": "card", "body": "the app" + " is slow a" * (n >= 50)}
        for n in range(100)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    paths = find_inputs("incoming/*.jsonl", home, date=None)
    found = survey(paths, data=tiny_task.data, home=home, rows_per_shard=10, spool=tmp_path / "s")
    _, flow = fitting_text_flow(tiny_bundle, tiny_task)
    # Of shards 0, 3, 6 and 9 the first two are short.
    assert sampled_texts(flow, found.shards) == Texts(100, 7.5, 7.5, "sample of 40 rows")
