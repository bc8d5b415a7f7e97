from __future__ import annotations

import datetime as dt
import logging
import re
from urllib.parse import unquote

import pytest

from pipeline.drift import DriftBounds
from pipeline.engines.quality_pages import QualityReport, finish_pages
from pipeline.expectations import expectations
from pipeline.flow import Prepared
from pipeline.partition_profile import PartitionProfile
from pipeline.rows import RawRow, Rejected
from pipeline.validate import Validator
from schemas.load import parse_task

# Importing Great Expectations alone takes five seconds.
pytestmark = pytest.mark.slow

DAY = dt.date(2026, 11, 28)
RAW = {
    "name": "tickets",
    "data": {"incoming": "x", "id_column": "id", "text_columns": ["body"]},
    "contract": {
        "min_rows": 2,
        "max_reject_fraction": 0.25,
        "columns": {
            "channel": {"allowed": ["web"], "severity": "warn"},
            "stars": {"type": "integer", "allowed": ["5"]},
            "sku": {"pattern": "[A-Z]{2}-[0-9]+($|<X>)", "severity": "warn"},
            "created": {"max_days_before": 3, "severity": "stop"},
        },
        "languages": {"allowed": ["en"], "severity": "warn"},
    },
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}
NO_DRIFT = DriftBounds()
DRIFT = DriftBounds(("1", "2", "3"), (1, 5), {"sku": (0.0, 0.1)})


def measured(rows):
    task = parse_task(RAW, source="test")
    validator, profile = Validator(task.data, task.contract), PartitionProfile(task, DAY)
    for number, values in enumerate(rows):
        row = RawRow("a.csv", number, values, b"")
        checked = validator.check(row, DAY)
        if isinstance(checked, Rejected):
            profile.add(row, checked)
        else:
            lang = "it" if values["body"] == "ciao" else "en"
            profile.add(row, Prepared(checked, ("x",), "0" * 32, lang, (), False))
    return task, profile


def check(tmp_path, rows, drift=NO_DRIFT):
    from pipeline.engines.great_expectations_suite import check_partition

    task, profile = measured(rows)
    asked = expectations(task, profile, drift)
    return check_partition(
        asked, profile.measured, pages=tmp_path, name="tickets date=2026-11-28"
    ), QualityReport("tickets", "2026-11-28", profile.rows, {}, ())


def row(number, **values):
    fine = {"id": str(number), "body": "hush, a secret", "channel": "web", "stars": "5"}
    return {**fine, "sku": "AB-1", "created": "2026-11-27", **values}


def pages(folder):
    return "".join(page.read_text(encoding="utf-8") for page in folder.rglob("*.html"))


MIXED = [
    row(0, channel="fax"),
    row(1, stars="private", sku=None),
    row(2, stars="5.5", body="ciao"),
    row(3, sku="AB-private", created="2026-11-20"),
]


def test_a_sound_partition_meets_all_and_its_pages_hold_no_text(tmp_path):
    checked, _ = check(tmp_path, [row(n) for n in range(4)], DRIFT)
    assert [each.asked.key for each in checked if not each.passed] == []
    assert "hush" not in pages(tmp_path)


def test_what_is_not_met_carries_rule_share_and_severity(tmp_path):
    checked, _ = check(tmp_path, MIXED, DRIFT)
    failures = {each.asked.key: each for each in checked if not each.passed}
    told = {key: (each.status, each.observed, each.failure_count) for key, each in failures.items()}
    assert told == {
        "max_reject_fraction": ("failed", "75 %", 0),
        "channel:allowed": ("warning", "75 %", 1),
        "stars:type": ("failed", "50 %", 2),
        "sku:pattern": ("warning", "66.66 %", 1),
        "created:max_days_before": ("failed", "75 %", 1),
        "drift of missing values": ("warning", "75 %", 0),
    }
    assert failures["stars:type"].fraction == 0.5


def test_a_language_and_a_volume_that_are_not_expected(tmp_path):
    rows = [row(n, body="ciao" if n == 0 else "hello") for n in range(8)]
    checked, _ = check(tmp_path, rows, DRIFT)
    failures = {each.asked.key: each.observed for each in checked if not each.passed}
    assert failures == {"lang:allowed": "87.5 %", "drift of volume": "8"}


def test_the_pages_of_great_expectations_say_it_in_our_words_and_hold_no_values(tmp_path):
    check(tmp_path, MIXED)
    text = pages(tmp_path)
    assert "at least 75 % of values to be of type integer" in text
    assert "all values to match [A-Z]{2}-[0-9]+($|&lt;X&gt;)" in text
    assert "private" not in text
    assert "fax" not in text


def test_a_partition_without_rows_is_only_counted(tmp_path):
    checked, _ = check(tmp_path, [])
    assert [(each.asked.key, each.status, each.observed) for each in checked] == [
        ("min_rows", "failed", "0")
    ]


def test_failure_45_results_are_summaries_without_values_or_lists_of_rows(tmp_path, monkeypatch):
    """Complete results blow up memory: nothing that grows with the broken rows is asked for."""
    from pipeline.engines import great_expectations_suite as suite

    kept = []
    run = suite._run
    monkeypatch.setattr(suite, "_run", lambda *a, **k: kept.extend(run(*a, **k)) or kept)
    check(tmp_path, [row(n, stars="1", channel="fax") for n in range(5000)])
    for result in kept:
        lists = [value for value in result.result.values() if isinstance(value, list) and value]
        assert lists == []
    assert sum(len(str(result.result)) for result in kept) < 20_000


def test_every_link_of_every_page_leads_to_a_file_or_a_place_beside_it(tmp_path):
    _, report = check(tmp_path, MIXED)
    finish_pages(tmp_path, report)
    found = sorted(tmp_path.rglob("*.html"))
    assert len(found) == 3
    for page in found:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"https?:|<script|<img|<iframe|<form|src=|url\(|@import", text) == []
        for target in re.findall(r'href="([^"]*)"', text):
            path, _, place = unquote(target).partition("#")
            assert (page.parent / path).exists()
            assert f'id="{place}"' in text or not place


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
