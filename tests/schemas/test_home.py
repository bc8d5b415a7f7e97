"""Where things lie: explicit folder, then the environment, then a default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.errors import ArtifactError
from schemas.home import HOME_VARIABLE, Home
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from pathlib import Path


def test_precedence_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    assert Home.find().root == tmp_path / "nightmill-home"
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "by-variable"))
    assert Home.find().root == tmp_path / "by-variable"
    assert Home.find(tmp_path / "explicit").root == tmp_path / "explicit"


def test_naming_a_home_makes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    paths = [home.tasks, home.scores("t"), home.staging("t"), home.downloads, home.artifacts]
    assert not any(path.exists() for path in [home.root, *paths])


def test_relative_paths_start_at_the_home(home: Home) -> None:
    assert home.resolve("incoming/x.csv") == home.root / "incoming" / "x.csv"
    assert str(home.resolve("/data/x.csv")) == "/data/x.csv"


def test_tracking_is_sqlite_in_the_home_unless_said(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home.tracking_uri == f"sqlite:///{home.root}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert home.tracking_uri == "http://mlflow:5000"


def test_a_run_that_is_not_fine_tuned_says_what_to_do(home: Home) -> None:
    run = TrainingRun(home, "tiny", "r1")
    assert run.bundle == home.models("tiny") / "r1" / "bundle"
    with pytest.raises(ArtifactError, match="'r1' is not fine-tuned; run `nightmill finetune`"):
        run.finetuned()
