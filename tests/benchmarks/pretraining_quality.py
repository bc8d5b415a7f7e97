"""What continued pretraining does for held-out perplexity and for the classifier behind it.

    python tests/benchmarks/pretraining_quality.py [--set NAME]... [--seed N] [--data FOLDER]

Each set's backbone is fine-tuned three times: as it comes, after `nightmill pretrain` on the set's
own texts without labels, and after that with new words in its vocabulary. Texts that perplexity
and test figures are measured on are never learned from. Replaces the lines of the sets it has run
in the section `pretraining` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import PAGE, cpu_name, write_section

from schemas.home import Home

SECTION = "pretraining"
HEADER = (
    "| set | new words | perplexity a word, before | after | change | pieces a word | accuracy | "
    "macro-F1 | minutes |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Trial:
    """A set whose texts are learned from, the file of its test records, and settings of both."""

    name: str
    labelled: str
    test: str | None = None
    settings: tuple[str, ...] = ()


TRIALS = (
    # A third is held out of both, the same texts, since the seeds are the same.
    Trial(
        "cfpb_llm_bench", "test.parquet",
        settings=(
            "train.test_fraction=0.3", "pretrain.valid_fraction=0.3", "pretrain.epochs=5",
        ),
    ),
    Trial(
        "tickets_multilang_synth", "train.parquet", test="test.parquet",
        settings=("window.max_tokens=128", "train.epochs=3"),
    ),
)  # fmt: skip
NEW_TOKENS = (0, 300)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA",
              default=REPOSITORY.parent / "shared" / "data")  # fmt: skip
@click.option("--set", "sets", multiple=True, help="Sets to run.  [default: all]")
@click.option("--seed", type=int, default=13, show_default=True)
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(data: Path, sets: tuple[str, ...], seed: int, write: bool) -> None:
    """Measure and write, set after set."""
    for trial in (trial for trial in TRIALS if not sets or trial.name in sets):
        with tempfile.TemporaryDirectory() as scratch:
            lines = run(trial, data / trial.name, Home(Path(scratch).resolve()), seed)
        click.echo("\n".join([HEADER, *lines]))
        if write:
            write_section(SECTION, page(lines, seed))


def run(trial: Trial, folder: Path, home: Home, seed: int) -> list[str]:
    """Trains all ways and answers their lines of the table."""
    home.tasks.mkdir(parents=True)
    (home.tasks / f"{trial.name}.yaml").write_text(yaml.safe_dump(task_of(trial, folder)))
    seeds = (f"train.seed={seed}", f"pretrain.seed={seed}", "train.precision=null")
    started = time.monotonic()
    lines = [
        line_of(trial, "no pretraining", None, _nightmill(home, trial, "train", *seeds), started)
    ]
    for count in NEW_TOKENS:
        started = time.monotonic()
        learned = _nightmill(home, trial, "pretrain", *seeds, f"pretrain.new_tokens={count}")
        trained = _nightmill(
            home, trial, "train", *seeds, f"train.backbone={learned['address']}"
        )  # fmt: skip
        lines.append(line_of(trial, str(count), learned, trained, started))
    return lines


def _nightmill(home: Home, trial: Trial, command: str, *overrides: str) -> dict[str, Any]:
    """Runs a command of ours on the trial's task and answers its result."""
    result = home.root / "result.json"
    settings = [*trial.settings, *overrides]
    subprocess.run(
        [sys.executable, "-m", "jobs", command, trial.name, *settings, "--home", str(home.root),
         "--result", str(result)],
        check=True, cwd=REPOSITORY,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "NIGHTMILL_LOG_FORMAT": "text"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def task_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """The set as a task file; what is learned from without labels are its labelled texts."""
    labelled = folder / trial.labelled
    labels = sorted(set(pq.read_table(labelled, columns=["label"])["label"].to_pylist()))
    data = {
        "incoming": str(labelled), "labelled": str(labelled), "id_column": "id",
        "text_columns": ["text"],
    }  # fmt: skip
    if trial.test is not None:
        data["test"] = str(folder / trial.test)
    return {
        "name": trial.name,
        "data": data,
        "contract": {"max_reject_fraction": 1.0},
        "heads": {"label": {"column": "label", "labels": labels}},
    }


def line_of(
    trial: Trial,
    way: str,
    learned: dict[str, Any] | None,
    trained: dict[str, Any],
    started: float,
) -> str:
    """A line of the table from what the two commands answered."""
    metrics = trained["fp32_metrics"]["label"]
    low, high = metrics["accuracy_interval"]
    perplexity = ["", "", "", ""]
    if learned is not None:
        before, after = (learned[when]["perplexity_per_word"] for when in ("before", "after"))
        pieces = learned["pieces_per_word"]
        perplexity = [
            f"{before:.1f}", f"{after:.1f}", f"{after / before - 1:+.0%}",
            f"{pieces[0]:.2f} to {pieces[1]:.2f}",
        ]  # fmt: skip
    cells = [
        trial.name, way, *perplexity, f"{metrics['accuracy']:.4f} ({low:.3f} to {high:.3f})",
        f"{metrics['macro_f1']:.4f}", f"{(time.monotonic() - started) / 60:.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def page(lines: list[str], seed: int) -> str:
    """The section with these lines, and those of other sets as they were."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = re.search(rf"^## {SECTION}\n.*?(?=^## |\Z)", before, re.MULTILINE | re.DOTALL)
    rows = [row for row in (found[0] if found else "").splitlines() if row.startswith("| ")]
    mine = {_set(line) for line in lines}
    others = [row for row in rows if _set(row) not in {*mine, "set", "---"}]
    body = "\n".join([*others, *lines])
    return f"""The demo's 6-layer encoder, which comes without a masked-language head: one is fitted to it before anything is measured.
Accuracy and macro-F1 are those of the fine-tuned model in fp32 on test records that neither step has learned from.
Asked for: perplexity at least 15 % lower, the classifier no worse. Seed {seed}.

{HEADER}
{body}

Command: `python tests/benchmarks/pretraining_quality.py --set NAME --seed {seed}`. Machine: {cpu_name()},
{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}."""


def _set(row: str) -> str:
    return row.split("|")[1].strip()


if __name__ == "__main__":
    main()
