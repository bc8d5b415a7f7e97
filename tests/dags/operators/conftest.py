"""A Ray cluster in memory, and the context that Airflow gives to a try of a task."""

from __future__ import annotations

import json
import shlex
import uuid
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dags.operators.job import JobOperator
from dags.operators.ray_cluster import GENERATION, ClusterAwayError, RayJob
from dags.operators.submission import RayOptions

ADDRESS = "http://head:8265"
QUICK = RayOptions(poll_s=0.01, away_s=0.05, shared_lag_s=0)


class FakeCluster:
    """Ends each job it takes at once as `plans` says; without a plan the job goes on running."""

    def __init__(self) -> None:
        self.jobs: dict[str, RayJob] = {}
        self.orders: list[Any] = []
        self.plans: deque[dict[str, Any]] = deque()
        self.stopped: list[str] = []
        self.looks = 0
        self.away = False
        self.loses_answers = False
        self.on_look = lambda: None

    @property
    def submitted(self) -> list[str]:
        return [order.submission_id for order in self.orders]

    def plan(self, *, exit_code: int = 0, error: str = "", result: Any = None) -> None:
        self.plans.append({"exit_code": exit_code, "error": error, "result": result or {}})

    def submit(self, order: Any) -> None:
        self._answer()
        if order.submission_id in self.jobs:
            raise ClusterAwayError("HTTP status 500: already exists")
        self.orders.append(order)
        self.jobs[order.submission_id] = RayJob(
            "RUNNING", entrypoint=order.entrypoint, generation=order.metadata[GENERATION]
        )
        if self.plans:
            self.end(order.submission_id, **self.plans.popleft())
        if self.loses_answers:
            raise ClusterAwayError("read timed out")

    def end(self, submission_id: str, *, exit_code: int, error: str = "", result: Any = None):
        job = self.jobs[submission_id]
        status = "FAILED" if exit_code else "SUCCEEDED"
        if not exit_code:
            Path(shlex.split(job.entrypoint)[-1]).write_text(json.dumps(result))
        self.jobs[submission_id] = replace(job, status=status, exit_code=exit_code, error=error)

    def look(self, submission_id: str) -> RayJob | None:
        self.looks += 1
        self.on_look()
        self._answer()
        return self.jobs.get(submission_id)

    def stop(self, submission_id: str) -> None:
        self._answer()
        self.stopped.append(submission_id)
        self.jobs[submission_id] = replace(self.jobs[submission_id], status="STOPPED")

    def logs(self, submission_id: str) -> str:
        self._answer()
        return f"log of {submission_id}\nsecond line\n"

    async def tail(self, submission_id: str):
        yield self.logs(submission_id)

    def _answer(self) -> None:
        if self.away:
            raise ClusterAwayError("Ray at http://head:8265 does not answer")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, home: Path) -> FakeCluster:
    fake = FakeCluster()
    monkeypatch.setattr("dags.operators.job.RayCluster", lambda _: fake)
    monkeypatch.setattr("dags.operators.triggers.RayCluster", lambda _: fake)
    return fake


class FakeStore(dict):
    """The task's state store, which outlives its tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def _context_of(
    *, store: FakeStore | None = None, max_tries: int = 2, began: int = 1, **changes: Any
) -> dict[str, Any]:
    """The context of a new try: each has an id of its own."""
    ti = {
        "dag_id": "nightly",
        "task_id": "score",
        "run_id": "scheduled__2026-11-28T02:00:00+00:00",
        "map_index": -1,
        "max_tries": max_tries,
        "id": uuid.uuid4(),
        "stats_tags": {},
    }
    run = SimpleNamespace(start_date=datetime(2026, 11, began, tzinfo=UTC))
    context = {"ti": SimpleNamespace(**{**ti, **changes}), "dag_run": run}
    return context if store is None else {**context, "task_state_store": store}


def _operator(**kwargs: Any) -> JobOperator:
    defaults = {"task_id": "score", "job": "score", "arguments": ["tickets"]}
    return JobOperator(**{**defaults, "ray_address": ADDRESS, "ray": QUICK, **kwargs})


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def context_of():
    """Makes the context of a new try; see `_context_of`."""
    return _context_of


@pytest.fixture
def on_ray():
    """Makes an operator that submits to a cluster; see `_operator`."""
    return _operator
