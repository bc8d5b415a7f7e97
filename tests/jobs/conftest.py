"""A home with a tiny task, its bundle and a few nights of input; jobs run in this process."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from click.testing import CliRunner, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from schemas.home import Home

WORDS = [
    "invoice",
    "payment",
    "refund",
    "card",
    "app",
    "error",
    "crash",
    "login",
    "parcel",
    "late",
    "broken",
    "price",
    "service",
]


@pytest.fixture
def tiny_home(home: Home, tiny_task: Any, tiny_bundle: Path) -> Home:
    """A home whose task `tiny` is scored by the tiny bundle."""
    raw = tiny_task.model_dump(mode="json")
    raw["score"] |= {"model": f"path:{tiny_bundle}", "workers": 2}
    home.tasks.mkdir()
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return home


@pytest.fixture
def train_home(home: Home, tiny_task: Any) -> Home:
    """A home whose task `tiny` has nothing yet but its file."""
    home.tasks.mkdir()
    raw = tiny_task.model_dump(mode="json")
    raw["train"] |= {"learning_rate": 5e-3, "epochs": 2, "threads_per_worker": 1}
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return home


@pytest.fixture(scope="session", name="write_night")
def write_night_fixture() -> Callable[..., list[dict[str, Any]]]:
    """Writes a night of input; see `write_night`."""
    return write_night


def write_night(home: Home, day: str, *, rows: int, first: int = 0) -> list[dict[str, Any]]:
    """A night of JSONL: sound rows, a repeated text, and three rows that must be rejected."""
    records: list[dict[str, Any]] = [
        {
            "ticket_id": f"{day}-{first + number}",
            "subject": WORDS[number % len(WORDS)],
            "body": " ".join(
                WORDS[(number * step) % len(WORDS)] for step in range(1, 4 + number % 60)
            ),
        }
        for number in range(rows - 4)
    ]
    records.append(records[0] | {"ticket_id": f"{day}-again"})  # a text seen before
    records.append(records[1])  # an id seen before
    records.append({"ticket_id": f"{day}-empty", "subject": None, "body": "  "})
    lines = [json.dumps(record) for record in records] + ['{"ticket_id": "cut o']
    path = home.root / f"incoming/tiny/date={day}/rows.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return records


@pytest.fixture
def nightmill() -> Callable[..., Result]:
    """Runs a job in this process; standard error is in the result's `stderr`."""
    from jobs.__main__ import app

    def run(*arguments: str, home: Home) -> Result:
        return CliRunner().invoke(app, [*arguments, "--home", str(home.root)])

    return run


@pytest.fixture
def lineage_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[dict[str, Any]]]:
    """Lets jobs append their lineage events to a file; reads it."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")

    def read() -> list[dict[str, Any]]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    return read


@pytest.fixture
def steps_of() -> Callable[[Home, str], dict[str, Any]]:
    """Runs in MLflow of the steps below a training run, by step."""
    from mlflow import MlflowClient

    def find(home: Home, parent: str) -> dict[str, Any]:
        client = MlflowClient(home.tracking_uri)
        experiment = client.get_run(parent).info.experiment_id
        below = f"tags.mlflow.parentRunId = '{parent}'"
        found = client.search_runs([experiment], filter_string=below)
        return {run.data.tags["nightmill.step"]: run for run in found}

    return find


class FakeTrain:
    """Ray Train as a worker sees it: a rank, and the last reported checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rank = folder, 0
        self.metrics: list[dict[str, Any]] = []

    def get_context(self) -> Any:
        return SimpleNamespace(get_world_rank=lambda: self.rank)

    def get_checkpoint(self) -> Any:
        from ray.train import Checkpoint

        kept = self.folder / "kept"
        return Checkpoint.from_directory(str(kept)) if kept.exists() else None

    def report(self, metrics: dict[str, Any], *, checkpoint: Any) -> None:
        self.metrics.append(metrics)
        if checkpoint is not None:
            shutil.copytree(checkpoint.path, self.folder / "kept", dirs_exist_ok=True)


@pytest.fixture
def fake_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTrain:
    """Stands for Ray Train; keeps what is reported below `tmp_path`."""
    import ray.train.torch

    # Imported whole: the package itself is put back after the test, and finds itself till then.
    fake = FakeTrain(tmp_path)
    monkeypatch.setattr(ray, "train", fake)
    return fake


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and on a busy machine wait for them very long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def workers_here(
    fake_train: FakeTrain, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> FakeTrain:
    """Has a training worker run in this process, with all around it but Ray's own processes."""
    from jobs import ray_training

    class Trainer:
        def __init__(self, worker: Any, *, train_loop_config: dict[str, Any], **_: Any) -> None:
            shutil.rmtree(fake_train.folder / "kept", ignore_errors=True)
            # A worker has nothing of this process but plain data.
            self.fit = partial(worker, json.loads(json.dumps(train_loop_config)))

    monkeypatch.setattr(ray_training, "TorchTrainer", Trainer)
    monkeypatch.setattr(ray_training, "ray_session", lambda **_: nullcontext())
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # as workers set it; undone afterwards
    return fake_train


@pytest.fixture(name="killing_a_worker")
def killing_a_worker_fixture() -> Any:
    """Kills a worker while the block runs; see `killing_a_worker`."""
    return killing_a_worker


@contextmanager
def killing_a_worker(folder: Path, *, reports: int) -> Iterator[list[int]]:
    """Kills a training worker, a process below this one, after so many reports; tells its id."""
    stop, killed = threading.Event(), list[int]()
    path = folder / "epochs.jsonl"

    def kill() -> None:
        while not stop.wait(0.05):
            if not path.exists() or path.read_text().count('"epoch"') < reports:
                continue
            for process in psutil.Process().children(recursive=True):
                names = [process.name(), *process.cmdline()]
                if any("RayTrainWorker" in name for name in names):
                    process.kill()
                    killed.append(process.pid)
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        stop.set()
        killer.join()
