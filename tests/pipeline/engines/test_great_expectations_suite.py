from __future__ import annotations

import pytest

from pipeline.partition_profile import PartitionProfile
from pipeline.rows import RawRow
from pipeline.validate import Validator
from schemas.load import parse_task

# Importing Great Expectations alone takes five seconds.
pytestmark = pytest.mark.slow

RAW = {
    "name": "tickets",
    "data": {"incoming": "x", "id_column": "id", "text_columns": ["body"]},
    "contract": {
        "min_rows": 2,
        "max_reject_fraction": 0.25,
        "columns": {
            "channel": {"allowed": ["web"], "severity": "warn"},
            "stars": {"allowed": ["5"]},
        },
    },
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


def check(tmp_path, rows):
    from pipeline.engines.great_expectations_suite import check_partition

    task = parse_task(RAW, source="test")
    validator, profile = Validator(task.data, task.contract), PartitionProfile(task)
    for number, values in enumerate(rows):
        row = RawRow("a.csv", number, values, b"")
        profile.add(row, validator.check(row))
    return check_partition(task, profile.columns, folder=tmp_path / "date=2026-11-28")


def row(number, **values):
    return {"id": str(number), "body": "hush, a secret", "channel": "web", "stars": "5", **values}


def pages(folder):
    return "".join(page.read_text(encoding="utf-8") for page in folder.rglob("*.html"))


def test_a_sound_partition_passes_and_its_pages_hold_no_text(tmp_path):
    result = check(tmp_path, [row(n) for n in range(4)])
    assert result.failures == ()
    assert result.page == tmp_path / "date=2026-11-28" / "index.html"
    assert "body_chars" in pages(tmp_path)
    assert "secret" not in pages(tmp_path)


def test_failures_carry_column_share_and_severity(tmp_path):
    rows = [row(0), row(1, channel="fax"), row(2, stars="private"), row(3, stars="private")]
    failures = {(f.column, f.check): f for f in check(tmp_path, rows).failures}
    channel = failures["channel", "expect_column_values_to_be_in_set"]
    assert (channel.critical, channel.failure_count, channel.fraction) == (False, 1, 0.25)
    stars = failures["stars", "expect_column_values_to_be_in_set"]
    assert (stars.critical, stars.failure_count, stars.fraction) == (True, 2, 0.5)
    assert failures["row_rejected", "expect_column_mean_to_be_between"].critical
    assert "private" not in pages(tmp_path)


def test_a_rerun_replaces_the_pages_and_leaves_nothing_beside_them(tmp_path):
    check(tmp_path, [row(0), row(1)])
    (tmp_path / "date=2026-11-28" / "stale.html").touch()
    check(tmp_path, [row(0), row(1)])
    assert [path.name for path in tmp_path.iterdir()] == ["date=2026-11-28"]
    assert not (tmp_path / "date=2026-11-28" / "stale.html").exists()


def test_a_partition_without_rows_is_only_counted(tmp_path):
    (failure,) = check(tmp_path, []).failures
    assert (failure.column, failure.critical) == (None, True)
