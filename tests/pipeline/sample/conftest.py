from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.sample.write import SamplePlan, write_samples
from schemas.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sample of the default plan."""
    root = tmp_path_factory.mktemp("week")
    write_samples(Home(root), SamplePlan())
    return root


@pytest.fixture(scope="session")
def big_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one day that is large enough for every kind of dirt."""
    root = tmp_path_factory.mktemp("big_day")
    write_samples(Home(root), SamplePlan(days=1, rows=4000, history_rows=50))
    return root


@pytest.fixture(scope="session")
def sound_rows() -> Callable[[Path], Rows]:
    """Reads what a careful reader would keep, by other code than what wrote it."""
    return _sound_rows


def _sound_rows(path: Path) -> Rows:
    parse = _parse_csv if path.suffix == ".csv" else _parse_jsonl
    kept: dict[str, dict[str, Any]] = {}
    for row in parse(path.read_bytes()):
        id_column = next(iter(row))
        values = list(row.values())
        texts = [row[name] for name in ("subject", "body", "text") if name in row]
        bad_text = texts and (
            not all(isinstance(text, str) for text in texts)
            or not "".join(texts).strip(" \n\t\u00a0\u200b")
        )
        bad_bytes = any("\ufffd" in value for value in values if isinstance(value, str))
        if row[id_column] and row[id_column] not in kept and not bad_text and not bad_bytes:
            kept[row[id_column]] = row
    return list(kept.values())


def _parse_csv(content: bytes) -> Rows:
    text = content.decode("utf-8", "replace")
    columns, *lines = csv.reader(io.StringIO(text, newline=""))
    return [dict(zip(columns, line, strict=True)) for line in lines if len(line) == len(columns)]


def _parse_jsonl(content: bytes) -> Rows:
    rows = []
    for line in content.decode("utf-8", "replace").split("\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
