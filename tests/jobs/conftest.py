"""A home with a tiny task, its bundle and a few nights of input; jobs run in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

if TYPE_CHECKING:
    from collections.abc import Callable
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


@pytest.fixture(name="write_night")
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
