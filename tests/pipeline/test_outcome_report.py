"""Published scores against what people decided later, by head and by language."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline import outcome_report
from pipeline.outcome_report import compare_with_outcomes
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.task import TaskConfig

DATE = "2026-11-28"
LANGS = ["de"] * 40 + ["en"] * 35 + ["fr"] * 5


def scored(number: int, lang: str) -> dict[str, Any]:
    """A score that says `billing` and `quality` of every record."""
    return {
        "record_id": f"t{number}",
        "lang": lang,
        "queue_scores": [0.7, 0.2, 0.1],
        "topics_scores": [0.1, 0.9],
    }


@pytest.fixture
def task(home: Home, tiny_task: TaskConfig, monkeypatch: pytest.MonkeyPatch) -> TaskConfig:
    table = pa.Table.from_pylist([scored(n, lang) for n, lang in enumerate(LANGS)])
    monkeypatch.setattr(outcome_report, "read_scores", lambda home, manifest: table)
    folder = home.root / "outcomes"
    folder.mkdir()
    rows = [
        {"ticket_id": f"t{n}", "queue": "billing" if n % 4 == 0 or lang == "fr" else "shipping",
         "topics": ["quality"]}
        for n, lang in reversed(list(enumerate(LANGS)))
    ]  # fmt: skip
    (folder / f"{DATE}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = tiny_task.data.model_copy(update={"outcomes": "outcomes/{date}.jsonl"})
    return tiny_task.model_copy(update={"data": data})


def test_quality_is_told_by_head_and_language(home: Home, task: TaskConfig) -> None:
    manifest: Any = SimpleNamespace(task="tiny", date=DATE)
    quality = compare_with_outcomes(task, home, [manifest])
    queue = quality["queue"]
    assert queue.rows == 80
    assert queue.accuracy == pytest.approx((10 + 9 + 5) / 80)
    assert {lang: found.rows for lang, found in queue.by_lang.items()} == {
        "de": 40,
        "en": 35,
        "fr": 5,
    }
    assert queue.by_lang["de"].accuracy == pytest.approx(10 / 40)
    assert queue.by_lang["en"].accuracy == pytest.approx(9 / 35)
    assert queue.by_lang["fr"].accuracy is None
    assert quality["topics"].by_lang["de"].accuracy == 1.0


def test_without_outcomes_nothing_is_told(home: Home, tiny_task: TaskConfig) -> None:
    manifest: Any = SimpleNamespace(task="tiny", date=DATE)
    assert compare_with_outcomes(tiny_task, home, [manifest]) == {}


def test_opinions_by_aspect_are_compared_too(
    home: Home, task: TaskConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = HeadConfig(kind="aspect", column="mood", labels=("good",), aspects=("food", "staff"))
    said = [0.2, 0.8, 0.9, 0.1]  # food:good, and nothing of the staff
    table = pa.Table.from_pylist(
        [{"record_id": f"t{n}", "lang": "de", "mood_scores": said} for n in range(4)]
    )
    monkeypatch.setattr(outcome_report, "read_scores", lambda home, manifest: table)
    moods = [{"food": "good"}, {}, "food:good|staff:good", None]
    rows = [{"ticket_id": f"t{n}", "mood": mood} for n, mood in enumerate(moods)]
    (home.root / "outcomes" / f"{DATE}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    manifest: Any = SimpleNamespace(task="tiny", date=DATE)
    found = compare_with_outcomes(
        task.model_copy(update={"heads": {"mood": head}}), home, [manifest]
    )["mood"]
    assert found.rows == 3
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.macro_f1 == pytest.approx((4 / 5 + 0.0) / 2)
