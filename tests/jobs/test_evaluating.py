"""What the page's maker does with a champion, and with runs of older versions."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs import evaluating
from jobs.evaluating import _by_time, _champion, _told
from pipeline.bundle import load_spec
from pipeline.model.comparison import ChampionComparison
from pipeline.model.findings import Diagnosis
from pipeline.model.label_errors import Suspect, save_suspects
from schemas.bundle import LanguageMetrics
from schemas.errors import ArtifactError
from schemas.searched import SEARCH_FILE, Searched, Trial
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home


class FakeRegistry:
    """A champion of the version given, whose files may be out of reach."""

    def __init__(self, version: str | None, folder: Path | None = None) -> None:
        self.version, self.folder = version, folder

    def champion(self, _: str) -> str | None:
        return self.version

    def fetch(self, uri: str) -> tuple[None, Path]:
        if self.folder is None:
            raise ArtifactError(f"{uri} cannot be fetched")
        return None, self.folder


@pytest.fixture
def bundled(tiny_bundle: Path) -> Any:
    return SimpleNamespace(spec=load_spec(tiny_bundle))


def test_a_first_model_has_no_champion_to_beat(bundled: Any) -> None:
    found = _champion(bundled, FakeRegistry(None))  # type: ignore[arg-type]
    assert found == ChampionComparison(notes=("The task has no champion yet.",))


def test_a_champion_out_of_reach_stops_nothing(
    bundled: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    found = _champion(bundled, FakeRegistry("3"))  # type: ignore[arg-type]
    assert (found.version, found.heads) == ("3", {})
    assert found.notes == ("Its files cannot be read, so it was not compared; see the log.",)
    assert "models:/tiny/3 cannot be fetched" in caplog.text


def test_the_champion_is_fetched_and_compared(
    bundled: Any, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def compare(*data: Any, version: str) -> ChampionComparison:
        asked.append((*data, version))
        return ChampionComparison(version=version)

    monkeypatch.setattr(evaluating, "compare_with_champion", compare)
    registry: Any = FakeRegistry("3", tiny_bundle)
    assert _champion(bundled, registry).version == "3"
    assert asked == [(bundled, tiny_bundle, "3")]


def test_quality_by_time_is_a_figure_by_head_and_period() -> None:
    month = LanguageMetrics(rows=40, accuracy=0.75, macro_f1=0.5)
    slices = {
        "time": {"2026-02": month, "unknown": LanguageMetrics(rows=3)},
        "length": {"x": month},
    }
    evaluation: Any = SimpleNamespace(
        heads=[SimpleNamespace(name="queue", slices=slices), SimpleNamespace(name="t", slices={})]
    )
    assert _by_time(evaluation) == {
        "test.queue.time.2026-02.rows": 40, "test.queue.time.2026-02.accuracy": 0.75,
        "test.queue.time.2026-02.macro_f1": 0.5, "test.queue.time.unknown.rows": 3,
    }  # fmt: skip


def test_what_a_run_left_is_told(home: Home) -> None:
    place = TrainingRun(home, "tiny", "r")
    place.folder.mkdir(parents=True)
    history = [{"epoch": 1, "train_loss": 0.5}]
    (place.folder / "progress.json").write_text(json.dumps({"history": history}))
    finetuned: Any = SimpleNamespace(best_epoch=1, rows={"train": 3})
    old = _told(place, finetuned)
    assert (old.history, old.best_epoch, old.rows) == (history, 1, {"train": 3})
    assert (old.diagnosis, old.suspects, old.searched) == (None, (), None)
    suspect = Suspect(record_id="a", head="queue", given="x", likely="y", confidence=0.9)
    save_suspects([suspect], place.folder / "label_errors.parquet")
    Diagnosis(judged={"queue": 3}).write(place.folder / "diagnosis.json")
    trial = Trial(number=0, settings={"dropout": 0.1}, macro_f1=(0.5,), outcome="finished")
    searched = Searched(fingerprint="f", trials=(trial,), winner=0, why="alone", epochs=1)
    searched.write(place.folder / SEARCH_FILE)
    new = _told(place, finetuned)
    assert new.searched == searched
    assert (new.diagnosis, new.suspects) == (Diagnosis(judged={"queue": 3}), (suspect,))
