"""Adapters and a target domain from task file to bundle; the workers' part in this process."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import onnx
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.model.bottleneck import ADAPTERS_FILE
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from schemas.home import Home
    from schemas.task import TaskConfig

    Run = Callable[..., Result]

KEYWORDS = {"billing": "invoice", "technical": "crash", "shipping": "parcel"}


def write(home: Home, name: str, rows: list[dict[str, str]]) -> None:
    path: Path = home.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_adapters_beside_a_target_domain_ship_without_its_classifier(
    home: Home, tiny_task: TaskConfig, nightmill: Run
) -> None:
    chooser, rows = random.Random(2), []
    for number in range(90):
        queue = list(KEYWORDS)[number % 3]
        words = [*chooser.choices(["the", "my", "please", "help"], k=4), KEYWORDS[queue]]
        rows.append({"ticket_id": f"t{number}", "subject": "", "queue": queue,
                     "body": " ".join([*words, str(number)])})  # fmt: skip
    write(home, "labelled/tiny/a.jsonl", rows)
    write(home, "incoming/tiny/date=2026-11-28/a.jsonl",
          [row | {"body": row["body"] + " urgent today"} for row in rows])  # fmt: skip
    home.tasks.mkdir()
    raw = tiny_task.model_dump(mode="json")
    raw["train"] |= {
        "adapter": {"width": 6}, "domain_adversarial": {}, "epochs": 2, "threads_per_worker": 1,
    }  # fmt: skip
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")

    done = nightmill("finetune", "tiny", "--run", "one", home=home)
    assert done.exit_code == 0, done.stderr
    place = TrainingRun(home, "tiny", "one")
    assert pq.read_table(place.domain_texts).num_rows == 90
    assert (place.checkpoint / ADAPTERS_FILE).exists()
    history = json.loads((place.folder / "progress.json").read_text())["history"]
    assert [0.0 < row["domain_accuracy"] < 1.0 for row in history] == [True, True]

    # Another night is other data: the run is not the same any more.
    write(home, "incoming/tiny/date=2026-11-29/a.jsonl", rows[:3])
    other = nightmill("finetune", "tiny", "--run", "one", home=home)
    assert "exists with other data or settings" in other.stderr

    bundled = nightmill("bundle", "tiny", "--run", "one", home=home)
    assert bundled.exit_code == 0, bundled.stderr
    graph = onnx.load(place.bundle / "model.onnx").graph
    shapes = [tuple(weight.dims) for weight in graph.initializer]
    assert shapes.count((32, 6)) == shapes.count((6, 32)) == 2
    assert not [shape for shape in shapes if 128 in shape]  # the classifier of domains
