"""What continued pretraining does for held-out perplexity and for the classifier behind it.

    python tests/benchmarks/pretraining_quality.py [--set NAME]... [--seed N] [--data FOLDER]

Each set's backbone is fine-tuned three times: as it comes, after `nightmill pretrain` on the set's
own texts without labels, and after that with new words in its vocabulary. Texts that perplexity
and test figures are measured on are never learned from. Replaces the lines of the sets it has run
in the section `pretraining` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import REPOSITORY, cpu_name, nightmill, rows_in, write_section

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
            "train.test_fraction=0.3", "pretrain.valid_fraction=0.3",
            "pretrain.epochs=10", "pretrain.batch_size=8",  # 700 short texts are few steps
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
    settings = (
        trial.name, *trial.settings, f"train.seed={seed}", f"pretrain.seed={seed}",
        "train.precision=null",
    )  # fmt: skip
    started = time.monotonic()
    trained = nightmill(home, "train", *settings)
    lines = [line_of(trial, "no pretraining", None, trained, started)]
    for count in NEW_TOKENS:
        started = time.monotonic()
        learned = nightmill(home, "pretrain", *settings, f"pretrain.new_tokens={count}")
        trained = nightmill(home, "train", *settings, f"train.backbone={learned['address']}")
        taken = f"{learned['new_tokens']} of {count} asked for"
        lines.append(line_of(trial, taken if count else "none", learned, trained, started))
    return lines


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
    mine = {_set(line) for line in lines}
    others = [row for row in rows_in(SECTION) if _set(row) not in mine]
    body = "\n".join([*others, *lines])
    return f"""The demo's 6-layer encoder, which comes without a masked-language head: one is fitted to it before anything is measured.
Trained in bf16 where the CPU has it; accuracy and macro-F1 are those of the fine-tuned model, exported in fp32, on test records that neither step has learned from.
Asked for: perplexity at least 15 % lower, the classifier no worse. Seed {seed}.

{HEADER}
{body}

Command: `python tests/benchmarks/pretraining_quality.py --set NAME --seed {seed}`. Machine: {cpu_name()},
{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}."""


def _set(row: str) -> str:
    return row.split("|")[1].strip()


if __name__ == "__main__":
    main()
