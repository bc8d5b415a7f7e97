"""What a small partition costs: 1,000 rows from the command to the published manifest.

    python tests/benchmarks/fixed_cost.py [--rows N] [--rounds N] [--rows-per-shard N] [--no-write]

The sample's tickets, the demo's 6-layer, 384-wide encoder with heads that nobody trained, dynamic
INT8, registered and promoted as champion, so that all that a night does is done. Each round is a
new date in a new process. Replaces the section `fixed cost` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import cpu_name, write_section
from untrained_bundle import write_bundle

from pipeline.engines.host import usable_cpus
from pipeline.engines.registry import Registry
from pipeline.heads import head_slices
from pipeline.model.backbone import save_tokenizer
from pipeline.model.checkpoint import new_classifier
from pipeline.model.export import export_onnx
from pipeline.model.quantize import prepare_for_quantization, quantize_to_dynamic
from schemas.home import Home
from schemas.load import load_task

if TYPE_CHECKING:
    from schemas.task import TaskConfig

TASK = "tickets"
FIRST = dt.date(2026, 11, 1)
WANTED_S = 15.0
STEPS = {
    "command": "Python and imports, until the job begins",
    "model": "the registry is asked, the bundle is fetched and checked",
    "survey": "digest, rows and shards of the input",
    "start": "waiting for Ray, which has started in the background",
    "workers": "worker processes start and load the model; waiting for the last one",
    "rows": "text, inference and writing: what grows with the rows",
    "publish": "digests checked, files moved, manifest written",
    "end": "after the manifest: Ray is stopped",
}


@click.command()
@click.option("--rows", default=1000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--rows-per-shard", default=None, type=int, help="[default: the task's]")
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(rows: int, rounds: int, rows_per_shard: int | None, write: bool) -> None:
    overrides = [f"score.rows_per_shard={rows_per_shard}"] if rows_per_shard else []
    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch).resolve() / "home")
        sample = ["sample", "--first-date", str(FIRST), "--days", str(rounds), "--rows", str(rows)]
        subprocess.run(command(*sample, home=home), check=True, capture_output=True)
        register_model(home, load_task(TASK, home), Path(scratch) / "bundle")
        days = [FIRST + dt.timedelta(days=number) for number in range(rounds)]
        measured = [score(home, day, *overrides) for day in days]
    total = statistics.median(sum_until_manifest(each) for each in measured)
    text = page(measured, rows=rows, total=total)
    click.echo(text)
    if write:
        write_section("fixed cost", text)
    sys.exit(0 if total < WANTED_S else 1)


def command(*arguments: str, home: Home) -> list[str]:
    return [sys.executable, "-m", "jobs", *arguments, "--home", str(home.root)]


def register_model(home: Home, task: TaskConfig, folder: Path) -> None:
    """Makes a bundle whose heads are random and has it as champion."""
    with tempfile.TemporaryDirectory() as scratch:
        source, model = Path(scratch) / "source.onnx", Path(scratch) / "int8.onnx"
        export_onnx(new_classifier(task.train, head_slices(task.heads)), source)
        prepared = prepare_for_quantization(source, Path(scratch) / "prepared.onnx")
        quantize_to_dynamic(prepared, model)
        tokenizer = Path(scratch) / "tokenizer.json"
        save_tokenizer(task.train.backbone, tokenizer)
        write_bundle(folder, task, "int8_dynamic", model=model, tokenizer=tokenizer)
    registry = Registry(home)
    run = registry.start_run(TASK, "none", params={})
    version = registry.register(TASK, folder, run_id=run)
    registry.promote(TASK, version, approver="nobody", reason="a measurement")
    shutil.rmtree(folder)


def score(home: Home, day: dt.date, *overrides: str) -> dict[str, float]:
    """Seconds by step of one partition."""
    published = home.scores(TASK) / f"date={day}"
    started, clock = time.time(), time.monotonic()
    done = subprocess.run(
        command(
            "score", TASK, "--date", str(day), "contract.max_reject_fraction=1.0", *overrides,
            home=home,
        ),
        env=os.environ | {"NIGHTMILL_LOG_FORMAT": "text"}, capture_output=True, text=True,
    )  # fmt: skip
    total = time.monotonic() - clock
    if done.returncode:
        sys.exit(done.stderr)
    line = json.loads((published / "publications.jsonl").read_text())
    until_manifest = (published / "manifest.json").stat().st_mtime - started
    steps = line["steps"]
    rows = line["worker_seconds"] / line["workers"]
    return {
        "command": until_manifest - sum(steps.values()),
        **{name: steps[name] for name in ("model", "survey", "start", "publish")},
        "workers": steps["scoring"] - rows,
        "rows": rows,
        "end": total - until_manifest,
        "memory": line["worker_peak_mib"],
        "processes": line["workers"],
    }


def sum_until_manifest(seconds: dict[str, float]) -> float:
    return sum(seconds[name] for name in STEPS if name != "end")


def page(measured: list[dict[str, float]], *, rows: int, total: float) -> str:
    lines = [
        f"| {name} | {what} | {statistics.median(each[name] for each in measured):.1f} |"
        for name, what in STEPS.items()
    ]
    totals = sorted(sum_until_manifest(each) for each in measured)
    verdict = "met" if total < WANTED_S else "missed"
    return f"""
{rows} sample tickets through `nightmill score`, in a process of its own, by the demo's encoder (dynamic INT8)
from the registry; median of {len(measured)} dates, seconds.

| step | what happens | seconds |
| --- | --- | --- |
{chr(10).join(lines)}
| **command to manifest** | {totals[0]:.1f} to {totals[-1]:.1f} | **{total:.1f}** |

Asked for: under {WANTED_S:.0f} s: **{verdict}**. Workers: {measured[0]["processes"]:.0f}, at most {max(each["memory"] for each in measured):.0f} MiB each.

Command: `python tests/benchmarks/fixed_cost.py`. Machine: {cpu_name()}, {usable_cpus()} cores, Python
{platform.python_version()}.
"""


if __name__ == "__main__":
    main()
