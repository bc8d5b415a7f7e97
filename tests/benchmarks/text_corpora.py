"""Every public set at hand through the text steps: what was rejected and why, what was mended.

    python tests/benchmarks/text_corpora.py [--data FOLDER]

Each split of each set in FOLDER is read, validated, cleaned and cut into windows with the default
settings of a task. Fails if a row is neither prepared nor rejected. Replaces the section `text sets`
of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import click

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import write_section
from text_memory import DATA, tokenizer_file

from pipeline.bundle import text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.leakage import without_leaks
from pipeline.model.labelled import Example
from pipeline.read import read_shard
from pipeline.survey import find_inputs, survey
from schemas.home import Home
from schemas.load import parse_task


@dataclass
class Account:
    """What became of one set's rows."""

    rows: int = 0
    prepared: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    windows: int = 0
    long: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    right_language: int = 0
    examples: list[Example] = field(default_factory=list)


def account(folder: Path, scratch: Path) -> Account:
    """Runs all splits of a set through the text steps."""
    raw = {
        "name": "corpora",
        "data": {"incoming": str(folder), "id_column": "id", "text_columns": ["text"]},
        "heads": {"label": {"column": "label", "labels": ["a", "b"]}},
    }
    task = parse_task(raw, source="corpora")
    flow = text_flow(task, BackboneTokenizer(tokenizer_file(scratch)))
    found = Account()
    surveyed = survey(
        find_inputs(str(folder), Home(scratch), date=None),
        data=task.data, home=Home(scratch), rows_per_shard=1000, spool=scratch / "spool",
    )  # fmt: skip
    for shard in surveyed.shards:
        for item in flow.prepare(read_shard(shard)):
            found.rows += 1
            if not isinstance(item, Prepared):
                found.rejected[item.reason.value] += 1
                continue
            windows = flow.windows(item).windows
            found.prepared += 1
            found.windows += len(windows)
            found.long += len(windows) > 1
            found.changed.update(item.flags)
            found.languages[item.lang] += 1
            found.right_language += item.lang == item.record.values["lang"]
            found.examples.append(_example(item))
    assert found.rows == sum(file.rows for file in surveyed.inputs)
    assert found.rows == found.prepared + found.rejected.total()
    return found


def _example(item: Prepared) -> Example:
    """What the check for leaks wants to know of a text."""
    record = item.record
    split: Any = Path(record.source_file).stem
    return Example(
        record_id=record.record_id, text_hash=item.text_hash, split=split,
        lang=item.lang, texts=item.texts, windows=(), targets={},
    )  # fmt: skip


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA", default=DATA)
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(data: Path, write: bool) -> None:
    """Run and write."""
    lines, total = [], Account()
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(path for path in data.iterdir() if path.is_dir()):
            found = account(folder, Path(scratch))
            lines.append(_line(folder.name, found))
            total.rows += found.rows
            total.prepared += found.prepared
            total.rejected.update(found.rejected)
    text = f"""All {len(lines)} sets, all splits, default settings: {total.rows:,} rows read = {total.prepared:,} prepared + {total.rejected.total():,}
rejected ({_counts(total.rejected) or "none"}). The empty ones are strings of nothing but scripts, HTML
tags and invisible characters, all in naughty_strings. Leaks are texts at least 0.85 alike between the sets' own splits, counted in the
split that they would be left out of.

| set | rows | prepared | rejected | over one window | texts changed by a step | languages told most often | as the set says | left out as leaks |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{chr(10).join(lines)}

Command: `python tests/benchmarks/text_corpora.py`, Python {platform.python_version()}."""
    print(text)
    if write:
        write_section("text sets", text)


def _line(name: str, found: Account) -> str:
    languages = ", ".join(f"{n:,} {lang}" for lang, n in found.languages.most_common(3))
    _, leaks = without_leaks(found.examples, similarity=0.85)
    return (
        f"| {name} | {found.rows:,} | {found.prepared:,} | {_counts(found.rejected)} | {found.long:,} | "
        f"{_counts(found.changed)} | {languages} | {found.right_language / found.prepared:.1%} | "
        f"{_counts(Counter(leaks.counts))} |"
    )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counter.most_common() if n)


if __name__ == "__main__":
    main()
