"""init, train and score on banking77, and what the shipped INT8 bundle is worth on the test split.

    python tests/benchmarks/banking77.py [--data FOLDER] [--seed N]

FOLDER holds `banking77/train.parquet` and `banking77/test.parquet` with columns id, text, label.
The test split is read once, at the end. The result replaces the section `banking77` of
docs/BENCHMARKS.md.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import cpu_name, write_section

MIN_ACCURACY = 0.90
MAX_GAP = 0.005


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="NIGHTMILL_DATA",
    default=REPOSITORY.parent / "shared" / "data",
)
@click.option("--seed", default=13, show_default=True)
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(data: Path, seed: int, write: bool) -> None:
    """Measure and write."""
    train, test = (data / "banking77" / f"{split}.parquet" for split in ("train", "test"))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        seconds: dict[str, float] = {}
        nightmill(
            home,
            "init",
            str(train),
            "--name",
            "banking77",
            "--text",
            "text",
            "--label",
            "label",
            "--test",
            str(test),
            seconds=seconds,
        )
        trained = nightmill(home, "train", "banking77", f"train.seed={seed}", seconds=seconds)
        night = (
            "score",
            "banking77",
            "--date",
            "2026-11-28",
            f"data.incoming={test}",
            "contract.max_reject_fraction=0.0",
        )
        nightmill(home, *night, seconds=seconds)
        again = nightmill(home, *night, seconds=seconds | {})
        assert again["partitions"]["2026-11-28"]["reused"]
        published = published_accuracy(home, test)
        publication = json.loads(
            (home / "scores/banking77/date=2026-11-28/publications.jsonl")
            .read_text()
            .splitlines()[0]
        )
    int8, fp32 = trained["metrics"]["label"], trained["fp32_metrics"]["label"]
    gap = fp32["accuracy"] - int8["accuracy"]
    met = int8["accuracy"] >= MIN_ACCURACY and gap < MAX_GAP and trained["variant"] != "fp32"
    text = f"""
Fine-tuned from the demo's 6-layer, 384-wide encoder with the default recipe, seed {seed}; 90 % of the
official training split trains, 10 % validates; the official test split ({int8["rows"]} records) is read once.

| | FP32 | shipped: {trained["variant"]} | published Parquet |
| --- | --- | --- | --- |
| accuracy | {fp32["accuracy"]:.4f} | {int8["accuracy"]:.4f} | {published:.4f} |
| 95 % interval | {interval(fp32)} | {interval(int8)} | |
| macro-F1 | {fp32["macro_f1"]:.4f} | {int8["macro_f1"]:.4f} | |

Asked for: accuracy of the shipped bundle at least {MIN_ACCURACY}, gap to FP32 under {MAX_GAP} (it is {gap:+.4f}), INT8:
**{"met" if met else "missed"}**. Seconds: init {seconds["init"]:.0f}, train {seconds["train"]:.0f}, score
{seconds["score"]:.0f} for {int8["rows"]} records; workers while scoring:
{publication["rows_scored"] / publication["worker_seconds"]:.0f} records/s per core.

Command: `make bench`. Machine: {cpu_name()}, {len(os.sched_getaffinity(0))} cores, Python
{platform.python_version()}.
"""
    click.echo(text)
    if write:
        write_section("banking77", text)
    sys.exit(0 if met else 1)


def nightmill(home: Path, *arguments: str, seconds: dict[str, float]) -> dict:
    """Runs a job; answers its result and notes its seconds."""
    result = home.with_name("result.json")
    result.unlink(missing_ok=True)
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "jobs", *arguments, "--home", str(home), "--result", str(result)],
        check=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "NIGHTMILL_LOG_FORMAT": "text"},
    )
    seconds[arguments[0]] = time.monotonic() - started
    return json.loads(result.read_text())


def published_accuracy(home: Path, test: Path) -> float:
    """Accuracy of the published rows, joined with the test labels by id."""
    truth = {row["id"]: row["label"] for row in pq.read_table(test).to_pylist()}
    parts = sorted((home / "scores/banking77/date=2026-11-28").glob("run=*/*.parquet"))
    rows = [row for part in parts for row in pq.ParquetFile(part).read().to_pylist()]
    assert len(rows) == len(truth)
    return float(np.mean([truth[row["record_id"]] == row["label"] for row in rows]))


def interval(metrics: dict) -> str:
    """A 95 % interval."""
    low, high = metrics["accuracy_interval"]
    return f"{low:.4f} to {high:.4f}"


if __name__ == "__main__":
    main()
