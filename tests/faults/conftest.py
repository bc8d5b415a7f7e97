"""A night of small shards, and faults put in from outside."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from schemas.fingerprint import digest_of_file
from schemas.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from schemas.task import TaskConfig

DATE = dt.date(2026, 11, 28)
ROWS = 120
WORDS = ("invoice", "payment", "refund", "card", "app", "error", "crash", "login", "parcel", "late")
INJECTED = Path(__file__).parent / "injected"


def night_lines() -> list[str]:
    """Rows `t0` to `t119` as JSON lines: all sorts of lengths, some texts twice, some rows bad."""
    chance = random.Random(5)
    lines = [
        json.dumps(
            {
                "ticket_id": f"t{number}",
                "subject": chance.choice(WORDS),
                "body": " ".join(chance.choices(WORDS, k=chance.randint(1, 60))),
            }
        )
        for number in range(ROWS)
    ]
    for number in (11, 57):  # a text of the same shard again
        lines[number] = lines[number - 1].replace(f'"t{number - 1}"', f'"t{number}"')
    lines[20] = '{"ticket_id": "t20'
    lines[33] = json.dumps({"ticket_id": "t33", "subject": "", "body": " "})
    return lines


def new_home(root: Path, task: TaskConfig, bundle: Path, **score: Any) -> Home:
    """A home with the night's input and a task `tiny` of four rows a shard and two workers."""
    raw = task.model_dump(mode="json")
    raw["score"] |= {"model": f"path:{bundle}", "workers": 2, "rows_per_shard": 4, **score}
    home = Home(root)
    home.tasks.mkdir(parents=True)
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    path = root / f"incoming/tiny/date={DATE}/rows.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(night_lines()) + "\n", encoding="utf-8")
    return home


class Job:
    """A run of `nightmill score` over the night, in a session of processes of its own."""

    def __init__(self, home: Home, **faults: Any) -> None:
        self.home = home
        self._log = home.root / "score.log"
        command = [sys.executable, "-m", "jobs", "score", "tiny", "--date", str(DATE)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--home", str(home.root)],
                env=os.environ | (with_faults(**faults) if faults else {}),
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def end(self, *, timeout_s: float = 240) -> int:
        """Exit code, once the job and all that it started are gone."""
        code = self.process.wait(timeout_s)
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                # Agents of a raylet that was killed ask its dead head for a minute before they go.
                gone, _, _ = select.select([handle], [], [], 150)
                os.close(handle)
                assert gone, f"{pid} outlives its job: {self.processes()}"
        return code

    def processes(self) -> list[tuple[int, str]]:
        """Id and command line of the processes of the session that are left."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append((int(folder.name), command))
        return found

    def shards_done(self) -> int:
        return len(list(self.home.staging("tiny").rglob("shards/*.json")))

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Whether the condition became true while the job ran."""
        while not condition():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.01)
                return False
        return True


@pytest.fixture
def start_job() -> Iterator[Callable[..., Job]]:
    """Starts a job over a home's night, with faults as keywords; what is left of it is ended."""
    jobs: list[Job] = []

    def start(home: Home, **faults: Any) -> Job:
        jobs.append(Job(home, **faults))
        return jobs[-1]

    yield start
    for job in jobs:
        for pid, _ in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.process.wait()


@pytest.fixture(scope="session")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, tiny_task: TaskConfig, tiny_bundle: Path
) -> Home:
    """A home in which the night was scored and left in peace."""
    home = new_home(tmp_path_factory.mktemp("undisturbed") / "home", tiny_task, tiny_bundle)
    job = Job(home)
    assert job.end() == 0, job.log
    return home


@pytest.fixture
def digests() -> Callable[[Home], dict[str, str]]:
    """Digest of every file below scores and quarantine but the log of publications."""
    return published_digests


@pytest.fixture
def make_home(
    tmp_path: Path, tiny_task: TaskConfig, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Home]:
    """Makes one more home with the same night in it; keywords go into its `score` section."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    numbers = iter(range(100))

    def make(**score: Any) -> Home:
        return new_home(tmp_path / f"home{next(numbers)}", tiny_task, tiny_bundle, **score)

    return make


def with_faults(**faults: Any) -> dict[str, str]:
    """The environment of a process in which these faults happen; see `injected/`."""
    paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "INJECTED_FAULTS": json.dumps(faults)}


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts faults into all processes that are started from now on."""

    def put(**faults: Any) -> None:
        for name, value in with_faults(**faults).items():
            monkeypatch.setenv(name, value)

    return put


def published_digests(home: Home) -> dict[str, str]:
    """Digest of every file below scores and quarantine but the log of publications."""
    return {
        str(path.relative_to(home.root)): digest_of_file(path)
        for folder in (home.scores("tiny"), home.quarantine("tiny"))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "publications.jsonl"
    }
