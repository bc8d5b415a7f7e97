"""Airflow in a folder of its own, and an interpreter that plays the jobs."""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from schemas.manifest import Counters, ModelRef, PartitionManifest

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]
_SETTINGS = runpy.run_path(str(REPOSITORY / "infra" / "airflow" / "settings.py"))
_FOLDER = tempfile.TemporaryDirectory(prefix="nightmill-airflow-")

# Airflow reads its settings once, when it is first imported: before any test module is.
(Path(_FOLDER.name) / "airflow").mkdir()
os.environ.update(
    _SETTINGS["airflow_environment"](Path(_FOLDER.name), repository=REPOSITORY, log_level="WARNING")
)

_FAKE = """\
#!{python}
import json, os, pathlib, signal, sys
folder = pathlib.Path(__file__).parent
arguments = sys.argv[3:]
job = arguments[0]
with (folder / "calls.jsonl").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
answers = json.loads((folder / "answers.json").read_text())
answer = answers.get(job, {{"result": {{}}, "exit_code": 0, "output": ""}})
print(answer["output"], flush=True)
if answer["exit_code"] < 0:
    os.kill(os.getpid(), -answer["exit_code"])
if answer["exit_code"] == 0 and answer["result"] is not None:
    path = pathlib.Path(arguments[arguments.index("--result") + 1])
    path.write_text(json.dumps(answer["result"]))
sys.exit(answer["exit_code"])
"""


@dataclass(frozen=True)
class FakeJobs:
    """Stands in for the interpreter that has the jobs: records calls, answers as it is told."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "python"

    def answer(self, job: str, *, result: Any = None, exit_code: int = 0, output: str = "") -> None:
        path = self.folder / "answers.json"
        answers = json.loads(path.read_text())
        answers[job] = {"result": result, "exit_code": exit_code, "output": output}
        path.write_text(json.dumps(answers))

    def calls(self) -> list[list[str]]:
        """Command lines from the job's name on, without the result file's random name."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)[2:-1] for line in lines]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("NIGHTMILL_HOME", str(folder))
    return folder


@pytest.fixture
def fake_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJobs:
    jobs = FakeJobs(tmp_path / "fake")
    jobs.folder.mkdir()
    (jobs.folder / "answers.json").write_text("{}")
    jobs.python.write_text(_FAKE.format(python=sys.executable))
    jobs.python.chmod(0o755)
    monkeypatch.setenv("NIGHTMILL_PYTHON", str(jobs.python))
    return jobs


@pytest.fixture
def published(home: Path) -> Callable[..., dict[str, Any]]:
    """Puts manifests of published dates into the home; answers what the job `score` would."""

    def publish(task: str, *days: str, rows: int = 10) -> dict[str, Any]:
        model = ModelRef(name=task, version="7", digest="d" * 64)
        paths = {}
        for day in days:
            paths[day] = home / "scores" / task / f"date={day}" / "manifest.json"
            PartitionManifest(
                task=task, date=day, run=f"run-{day}", fingerprint="f", model=model,
                config_digest="c", cleaner_version="1", inputs=(), scores=(), quarantine=(),
                counters=Counters(
                    rows_read=rows, rows_scored=rows - 2, rows_quarantined=2, rows_to_review=1
                ),
            ).write(paths[day])  # fmt: skip
        return {
            "model": model.model_dump(),
            "partitions": {day: {"manifest": str(path)} for day, path in paths.items()},
        }

    return publish
