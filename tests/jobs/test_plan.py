"""`nightmill plan`: the host, the way it would score, and what that would take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from schemas.manifest import Publication
from schemas.profiles import Distribution, PartitionStatistics, TextStatistics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.home import Home

DAY = "2026-11-20"


@pytest.fixture
def plan(
    tiny_home: Home, nightmill: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    monkeypatch.setenv("NIGHTMILL_CPUS", "3")

    def run(*arguments: str) -> Any:
        result = tmp_path / "result.json"
        result.unlink(missing_ok=True)
        done = nightmill("plan", "tiny", *arguments, "--result", str(result), home=tiny_home)
        done.answer = json.loads(result.read_text()) if result.exists() else None
        return done

    return run


def test_a_date_is_planned_by_a_sample_of_its_rows(
    plan: Callable[..., Any], tiny_home: Home, write_night: Callable[..., Any]
) -> None:
    write_night(tiny_home, DAY, rows=44)
    done = plan("--date", DAY, "score.workers=null", "score.price_per_hour=2.0")
    assert done.exit_code == 0, done.stderr
    answer = done.answer
    assert (answer["rows"], answer["workers"], answer["cpus"]) == (44, 3, 3)
    assert answer["threads_per_worker"] == 1
    assert answer["texts"] == "sample of 21 rows"  # of every second shard
    assert answer["tokens_per_row"] >= answer["tokens_per_window"] > 8
    assert answer["fixed_s"] == 15.0
    rate = 0.93 * answer["worker_tokens_per_s"] * 3 / answer["tokens_per_row"]
    assert answer["rows_per_s"] == pytest.approx(rate, rel=0.02)
    assert answer["cost"] == pytest.approx(2.0 * answer["hours"], abs=1e-3)
    assert f"rows_per_s            {answer['rows_per_s']}" in done.stdout
    assert len(list(tiny_home.plans.iterdir())) == 1  # the nightly job need not measure again
    assert not tiny_home.staging("tiny").exists()


def test_io_cpus_are_left_alone_and_set_workers_stand(
    plan: Callable[..., Any], tiny_home: Home, write_night: Callable[..., Any]
) -> None:
    write_night(tiny_home, DAY, rows=10)
    few = plan("--date", DAY, "score.workers=null", "score.io_cpus=1").answer
    assert few["workers"] == 2
    assert plan("--date", DAY, "score.workers=7").answer["workers"] == 7


def test_rows_alone_go_by_the_latest_profile(plan: Callable[..., Any], tiny_home: Home) -> None:
    for day, mean in (("2026-11-18", 50.0), ("2026-11-19", 30.0)):
        text = TextStatistics(
            tokenized=9, tokens=Distribution(mean=mean), windows=Distribution(mean=2.0)
        )
        PartitionStatistics(
            task="tiny", date=day, contract_version="c", rows=70, rejected=0, text=text
        ).write(tiny_home.quality("tiny") / f"date={day}" / "profile.json")
    answer = plan("--rows", "5000").answer
    assert (answer["rows"], answer["tokens_per_row"], answer["tokens_per_window"]) == (5000, 30, 15)
    assert answer["texts"] == "profile of 2026-11-19, 9 texts"
    assert answer["cost"] is None
    assert plan("--date", "2026-11-18").answer["tokens_per_row"] == 50.0


def test_rows_alone_without_a_profile_say_what_to_do(plan: Callable[..., Any]) -> None:
    done = plan("--rows", "5000")
    assert done.exit_code == 2
    assert "give --date, or run `nightmill validate tiny --date D` first" in done.stderr


def test_fixed_costs_are_those_of_the_last_run(
    plan: Callable[..., Any], tiny_home: Home, write_night: Callable[..., Any]
) -> None:
    write_night(tiny_home, DAY, rows=10)
    line = Publication(
        run="r", published_at="2026-11-19T02:00:00Z", seconds=31.0, shards_scored=4,
        rows_scored=40, worker_seconds=44.0, workers=2,
    )  # fmt: skip
    path = tiny_home.scores("tiny") / "date=2026-11-19" / "publications.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(line.model_dump_json() + "\n")
    assert plan("--date", DAY).answer["fixed_s"] == 9.0


def test_a_date_without_input_is_told(plan: Callable[..., Any]) -> None:
    assert plan("--date", DAY).exit_code == 3


def test_a_gpu_is_not_planned_for(plan: Callable[..., Any]) -> None:
    done = plan("--rows", "1", "score.device=gpu")
    assert done.exit_code == 2
    assert "plan measures CPUs only" in done.stderr
