from __future__ import annotations

import logging
import re
from urllib.parse import unquote

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
    return check_partition(task, profile, folder=tmp_path / "date=2026-11-28")


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


def test_every_link_of_every_page_leads_to_a_file_or_a_place_beside_it(tmp_path):
    rows = [row(0), row(1, channel="fax"), row(2, stars="private"), row(3, stars="private")]
    check(tmp_path, rows)
    found = sorted(tmp_path.rglob("*.html"))
    assert len(found) == 3
    for page in found:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"https?:|<script|<img|<iframe|<form|src=|url\(|@import", text) == []
        for target in re.findall(r'href="([^"]*)"', text):
            path, _, place = unquote(target).partition("#")
            assert (page.parent / path).exists()
            assert f'id="{place}"' in text or not place


def test_the_index_tells_verdict_reasons_and_each_expectation(tmp_path):
    rows = [row(0), row(1, channel="fax"), row(2, stars="private"), row(3, stars="private")]
    result = check(tmp_path, rows)
    page = result.page.read_text(encoding="utf-8")
    assert "<title>tickets 2026-11-28: data quality</title>" in page
    assert '<span class="mark failed">broken</span>' in page
    assert page.count('<span class="mark ') == 1 + len(result.expectations) == 1 + 9
    assert "at least 75 % of values to be one of 5</td><td>50 %</td>" in page
    assert '<tr><td>value_not_allowed</td><td class="number">2</td>' in page
    assert "private" not in page
    assert "fax" not in page


def test_a_check_logs_nothing_below_a_warning(tmp_path, caplog):
    logger = logging.getLogger("great_expectations")
    caplog.set_level(logging.INFO)
    before = logger.level
    logger.setLevel(logging.WARNING)  # as the entry point does
    try:
        check(tmp_path, [row(0), row(1)])
    finally:
        logger.setLevel(before)
    assert [r.message for r in caplog.records if r.name.startswith("great_expectations")] == []
