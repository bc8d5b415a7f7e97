"""The sections `schedule` and `monitor`: the short form, the long one, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.load import parse_task
from schemas.monitor import Finding, MonitorConfig, MonitorVerdict
from schemas.schedule import LateConfig, ScheduleConfig

MINIMAL = {
    "name": "mine",
    "data": {"incoming": "in.csv", "text_columns": ["text"]},
    "heads": {"topic": {"column": "topic", "labels": ["a", "b"]}},
}


def task_with(**sections: Any) -> Any:
    return parse_task({**MINIMAL, **sections}, source="mine.yaml")


def test_a_plain_string_is_the_cron_and_null_is_none() -> None:
    assert task_with(schedule="30 1 * * *").schedule == ScheduleConfig(cron="30 1 * * *")
    assert task_with(schedule=None).schedule is None
    assert task_with().schedule == ScheduleConfig(cron="0 2 * * *")


def test_an_asset_takes_the_place_of_the_cron() -> None:
    schedule = task_with(schedule={"asset": "x-in://tickets"}).schedule
    assert (schedule.asset, schedule.cron) == ("x-in://tickets", None)
    # As a bundle keeps it and reads it again.
    assert ScheduleConfig.model_validate(schedule.model_dump(mode="json")) == schedule


def test_nobody_waits_unless_told_to() -> None:
    assert LateConfig().waits is False
    assert LateConfig(wait_minutes=1).waits is True
    assert LateConfig(marker="in/{date}/_SUCCESS").waits is True


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"schedule": {"cron": "0 2 * * *", "asset": "x"}}, "cron and asset are both set"),
        ({"schedule": {"timezone": "Mars/Olympus"}}, "not the name of a time zone"),
        ({"schedule": {"poool": "gpu"}}, "did you mean 'pool'"),
        ({"schedule": {"late": {"then": "pray"}}}, "schedule.late.then: input should be 'fail'"),
        ({"schedule": {"late": {"rescore_days": 32}}}, "schedule.late.rescore_days"),
        ({"schedule": {"max_active_runs": 0}}, "schedule.max_active_runs"),
        ({"monitor": {"max_answer_distance": 1.5}}, "monitor.max_answer_distance"),
        ({"monitor": {"retrains": True}}, "did you mean 'retrain'"),
    ],
)
def test_what_cannot_be_is_refused_by_its_path(sections: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        task_with(**sections)


def test_schedule_and_monitor_have_defaults_that_do_nothing_new() -> None:
    task = task_with()
    assert (task.schedule.max_active_runs, task.schedule.pool) == (1, "default_pool")
    assert task.schedule.late == LateConfig(wait_minutes=0, rescore_days=0)
    assert task.monitor == MonitorConfig(retrain=False)


def test_the_gravest_evidence_comes_first() -> None:
    findings = (
        Finding(check="volume", level="watch", told="more rows"),
        Finding(check="cost", level="ok", told="as ever"),
        Finding(check="quality", level="retrain", told="worse"),
        Finding(check="languages", level="ok", told="as ever", is_drift=True),
    )
    verdict = MonitorVerdict(task="t", date="2026-11-28", level="retrain", findings=findings)
    assert verdict.evidence == ("worse", "more rows")
    assert verdict.drifts is False


@pytest.mark.parametrize("section", [ScheduleConfig, LateConfig, MonitorConfig])
def test_every_key_is_explained_to_people(section: type[ScheduleConfig]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "nightly.md").read_text("utf-8")
    table = page.partition("## Keys")[2].partition("\n## ")[0]
    keys = set(section.model_fields) - {"late"}  # a section of its own
    assert {key for key in keys if not re.search(rf"[`.]{key}`", table)} == set()
