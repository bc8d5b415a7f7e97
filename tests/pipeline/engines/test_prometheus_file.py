"""The metrics file: what stands in it, and what survives a broken night."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.engines.prometheus_file import write_metrics
from pipeline.run_report import NightFigures
from schemas.errors import ConfigError
from schemas.manifest import Counters, Effort

COUNTERS = Counters(
    rows_read=100, rows_scored=97, rows_quarantined=3, rows_to_review=5,
    quarantined_by_reason={"missing_text": 2, "invalid_json": 1},
)  # fmt: skip
EFFORT = Effort(
    seconds=36.0, shards_scored=1, rows_scored=100, worker_seconds=4.0, workers=2, tokens=6000,
    worker_peak_mib=3, steps={"scoring": 36.0}, worker_steps={"text": 1.0}, machines=1,
    price_per_hour=1.0,
)  # fmt: skip


def night(date: str, *, succeeded_at: float | None = None) -> NightFigures:
    return NightFigures("tickets", date, 200, COUNTERS, EFFORT, succeeded_at)


def samples(path):
    """Value by name and the labels behind task and date."""
    families = text_string_to_metric_families(path.read_text())
    return {
        (sample.name, sample.labels["date"],
         *(value for name, value in sample.labels.items() if name not in {"task", "date"})): value
        for family in families
        for sample in family.samples
        for value in [sample.value]
    }  # fmt: skip


def test_a_night_under_way_has_its_counts_and_no_success_yet(tmp_path):
    path = tmp_path / "metrics" / "tickets.prom"
    write_metrics(path, [night("2026-11-28")])
    day = "2026-11-28"
    assert samples(path) == {
        ("nightmill_rows_total", day, "scored"): 97,
        ("nightmill_rows_total", day, "quarantined"): 3,
        ("nightmill_rows_to_review_total", day): 5,
        ("nightmill_quarantined_rows_total", day, "missing_text"): 2,
        ("nightmill_quarantined_rows_total", day, "invalid_json"): 1,
        ("nightmill_step_seconds", day, "driver", "scoring"): 36,
        ("nightmill_step_seconds", day, "workers", "text"): 1,
        ("nightmill_rows_expected", day): 200,
        ("nightmill_tokens_inferred", day): 6000,
        ("nightmill_rows_per_second", day): 50,
        ("nightmill_tokens_per_second", day): 3000,
        ("nightmill_workers", day): 2,
        ("nightmill_worker_peak_bytes", day): 3 * 2**20,
        ("nightmill_cost_per_1000_rows", day): 0.1,
    }
    assert 'nightmill_rows_total{date="2026-11-28",outcome="scored",task="tickets"} 97.0' in (
        path.read_text().splitlines()
    )
    assert [file.name for file in path.parent.iterdir()] == ["tickets.prom"]


def test_a_broken_night_leaves_the_last_success_in_sight(tmp_path):
    path = tmp_path / "tickets.prom"
    write_metrics(path, [night("2026-11-27", succeeded_at=1000.5)])
    write_metrics(path, [night("2026-11-28")])
    name = "nightmill_last_success_timestamp_seconds"
    found = {key: value for key, value in samples(path).items() if key[0] == name}
    assert found == {(name, "2026-11-27"): 1000.5}
    write_metrics(path, [night("2026-11-28", succeeded_at=2000.0)])
    found = {key: value for key, value in samples(path).items() if key[0] == name}
    assert found == {(name, "2026-11-27"): 1000.5, (name, "2026-11-28"): 2000.0}


def test_the_file_does_not_grow_with_the_nights(tmp_path):
    path = tmp_path / "tickets.prom"
    for day in range(1, 29):
        write_metrics(path, [night(f"2026-11-{day:02}", succeeded_at=float(day))])
    kept = {key[1] for key in samples(path) if key[0].startswith("nightmill_last_success")}
    assert sorted(kept) == [f"2026-11-{day}" for day in range(22, 29)]
    write_metrics(path, [night("2026-10-01", succeeded_at=99.0)])  # a date of old, done again
    assert ("nightmill_last_success_timestamp_seconds", "2026-10-01") in samples(path)


@pytest.mark.parametrize("content", [b"", b"{}} not metrics\n", b"\xff\xfe"])
def test_a_file_that_is_no_metrics_file_is_replaced(tmp_path, content):
    path = tmp_path / "tickets.prom"
    path.write_bytes(content)
    write_metrics(path, [night("2026-11-28")])
    assert samples(path)[("nightmill_rows_expected", "2026-11-28")] == 200


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"score.metrics_file .*/file/a.prom cannot be written"):
        write_metrics(tmp_path / "file" / "a.prom", [night("2026-11-28")])
