from __future__ import annotations

from collections import Counter
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.sample.formats import count_rows
from pipeline.sample.write import FolderCount, SamplePlan, write_samples
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import load_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATES = [f"2026-11-{day}" for day in range(22, 29)]
INCOMING = {
    "tickets": ["ticket_id", "created_at", "channel", "subject", "body"],
    "reviews": ["review_id", "created_at", "product", "stars", "text"],
}
LABELS = {"tickets": ["queue", "priority"], "reviews": ["sentiment", "topics"]}
SUFFIX = {"tickets": "csv", "reviews": "jsonl"}
BOTH = pytest.mark.parametrize("task", ["tickets", "reviews"])


def _files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _incoming(root: Path, task: str, day: str) -> Path:
    return root / f"incoming/{task}/date={day}/{task}.{SUFFIX[task]}"


def _outcomes(root: Path, task: str, day: str) -> Path:
    return root / f"outcomes/{task}/date={day}.{SUFFIX[task]}"


def _history(root: Path, task: str) -> Path:
    return root / f"labelled/{task}/history.{SUFFIX[task]}"


def test_default_plan_writes_a_week_where_the_tasks_look_for_it(week: Path) -> None:
    expected = {str(_history(week, task)) for task in INCOMING}
    for day in DATES:
        expected |= {str(_incoming(week, task, day)) for task in INCOMING}
        expected |= {str(_outcomes(week, task, day)) for task in INCOMING}
    assert {str(path) for path in week.rglob("*") if path.is_file()} == expected
    for task in INCOMING:
        data = load_task(task, Home(week)).data
        assert list(week.glob(data.incoming.format(date="2026-11-25"))) == [
            _incoming(week, task, "2026-11-25")
        ]
        assert list(week.glob(str(data.labelled))) == [_history(week, task)]


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = SamplePlan(days=2, rows=120, history_rows=60)
    for name in ("one", "two"):
        write_samples(Home(tmp_path / name), plan)
    assert _files(tmp_path / "one") == _files(tmp_path / "two")


def test_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    for seed in (1, 2):
        plan = SamplePlan(days=1, rows=20, history_rows=20, seed=seed)
        write_samples(Home(tmp_path / str(seed)), plan)
    one, two = _files(tmp_path / "1"), _files(tmp_path / "2")
    assert one.keys() == two.keys()
    assert all(one[name] != two[name] for name in one)


def test_more_days_leave_the_earlier_ones_as_they_are(tmp_path: Path) -> None:
    for days in (1, 3):
        plan = SamplePlan(days=days, rows=30, history_rows=20)
        write_samples(Home(tmp_path / str(days)), plan)
    one, three = _files(tmp_path / "1"), _files(tmp_path / "3")
    assert len(one) == 6
    assert len(three) == 14
    assert all(three[name] == content for name, content in one.items())


@BOTH
def test_files_have_as_many_rows_as_asked_for(week: Path, task: str) -> None:
    assert [count_rows(_incoming(week, task, day)) for day in DATES] == [200] * 7
    assert count_rows(_history(week, task)) == 1600


def test_counts_agree_with_the_files(tmp_path: Path) -> None:
    counts = write_samples(Home(tmp_path), SamplePlan(days=2, rows=150, history_rows=40))
    assert counts["labelled/tickets"].rows == 40
    for task in INCOMING:
        days = [counts[f"incoming/{task}/date={day}"] for day in DATES[:2]]
        assert [day.rows for day in days] == [150, 150]
        decided = sum(count_rows(_outcomes(tmp_path, task, day)) for day in DATES[:2])
        assert counts[f"outcomes/{task}"] == FolderCount(files=2, rows=decided)
        assert decided == 300 - sum(day.faulty_rows for day in days)


@BOTH
def test_outcomes_are_exactly_the_sound_incoming_rows(
    week: Path, task: str, sound_rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    id_column = INCOMING[task][0]
    for day in DATES:
        sound = sound_rows(_incoming(week, task, day))
        decided = sound_rows(_outcomes(week, task, day))
        assert [row[id_column] for row in decided] == [row[id_column] for row in sound]
        assert len(sound) < 200  # every day has something for quarantine
        assert list(sound[0]) == INCOMING[task]
        assert list(decided[0]) == [id_column, *LABELS[task]]


@BOTH
def test_faulty_rows_stay_within_the_contract(
    week: Path, big_day: Path, task: str, sound_rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    limit = load_task(task, Home(week)).contract.max_reject_fraction
    for day in DATES:
        assert 1 - len(sound_rows(_incoming(week, task, day))) / 200 < limit
    share = 1 - len(sound_rows(_incoming(big_day, task, DATES[0]))) / 4000
    assert 0.015 < share < 0.03


@BOTH
def test_history_and_outcomes_have_the_labels_of_the_task(
    week: Path, task: str, sound_rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    history = sound_rows(_history(week, task))
    decided = [row for day in DATES for row in sound_rows(_outcomes(week, task, day))]
    assert list(history[0]) == [*INCOMING[task], *LABELS[task]]
    for head in load_task(task, Home(week)).heads.values():
        for rows in (history, decided):
            values = [row[head.column] for row in rows]
            flat = values if head.kind == "single" else [one for many in values for one in many]
            counts = Counter(flat)
            assert set(counts) == set(head.labels)
            assert min(counts.values()) > len(rows) * 0.05


def test_topics_are_none_to_four_in_the_order_of_the_labels(
    week: Path, sound_rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    labels = list(load_task("reviews", Home(week)).heads["topics"].labels)
    topics = [row["topics"] for row in sound_rows(_history(week, "reviews"))]
    assert {len(each) for each in topics} == {0, 1, 2, 3, 4}
    assert all(each == sorted(set(each), key=labels.index) for each in topics)


@BOTH
def test_rows_are_dated_by_their_file(
    week: Path, task: str, sound_rows: Callable[[Path], list[dict[str, Any]]]
) -> None:
    history = [row["created_at"] for row in sound_rows(_history(week, task))]
    assert history == sorted(history)
    assert max(history) < DATES[0]
    for day in DATES:
        created = [row["created_at"] for row in sound_rows(_incoming(week, task, day))]
        assert created == sorted(created)
        assert {each[:10] for each in created} == {day}


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("days", lambda: SamplePlan(days=0)),
        ("rows", lambda: SamplePlan(rows=0)),
        ("history_rows", lambda: SamplePlan(history_rows=0)),
    ],
)
def test_a_plan_of_nothing_is_refused(name: str, make: Callable[[], SamplePlan]) -> None:
    with pytest.raises(ConfigError, match=rf"sample: {name} must be at least 1, got 0"):
        make()


def test_a_plan_has_its_dates() -> None:
    plan = SamplePlan(first_date=date(2026, 12, 31), days=2)
    assert plan.dates == (date(2026, 12, 31), date(2027, 1, 1))


def test_a_file_in_the_way_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "labelled").write_text("in the way")
    with pytest.raises(ConfigError, match="a folder above it is a file; choose another --home"):
        write_samples(Home(tmp_path), SamplePlan(days=1, rows=1, history_rows=1))
