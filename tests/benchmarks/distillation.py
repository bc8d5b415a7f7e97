"""What distillation, pruning and INT8 keep of a teacher of BERT-base size, and what they gain.

    python tests/benchmarks/distillation.py [--work FOLDER] [--weights FOLDER] [--rows N]

A 12-layer, 768-wide MPNet encoder is fine-tuned on banking77. From it the demo's 6-layer, 384-wide
encoder learns, from both a 3-layer one, and each of the students is pruned. Each step is a command
of ours in a home below `--work`; a step that is done there with the same settings is not done
again, and one that was killed goes on. Settings are chosen on validation records; the test figures
are those in each bundle. Replaces the section `distillation` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from distillation_page import DTYPES, Line, page, pipeline_in
from distillation_speed import Host, Night, Way, best_setting, rates_of
from report import REPOSITORY, nightmill, write_section
from teacher_weights import default_folder, fetch_teacher
from training_quality import Trial, task_of

from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.fingerprint import digest_of
from schemas.home import Home
from schemas.manifest import write_atomically
from schemas.training import TrainingRun

TASK = "banking77"
TEACHER, SIX, THREE = "teacher", "six layers", "three layers"
SIX_PRUNED, THREE_TRIMMED, THREE_PRUNED = f"{SIX} pruned", f"{THREE} trimmed", f"{THREE} pruned"
INT8 = "compress.prefer=[int8_static,int8_dynamic,fp32]"
FP32 = "compress.prefer=[fp32]"
# Of each model: how it is trained or cut, beside whom it learns from.
RECIPES = {
    # The default rate, 3e-5, had a macro-F1 of 0.909 on validation records after three epochs.
    TEACHER: ("train.epochs=4", "train.learning_rate=8e-5", "train.frozen_layers=6"),
    SIX: ("train.epochs=8", "distil.alpha=0.8", "distil.temperature=2"),
    THREE: (
        "train.epochs=8", "distil.alpha=0.9", "distil.temperature=2",
        "distil.student.layers=[0,2,5]", "distil.augment.copies=2",
    ),
    SIX_PRUNED: (
        "compress.prune.layers=2", "compress.prune.layer_choice=least_harm",
        "compress.prune.heads=0.25", "compress.prune.neurons=0.33",
        "compress.prune.recovery_epochs=3",
    ),
    THREE_TRIMMED: (
        "compress.prune.heads=0.25", "compress.prune.neurons=0.25",
        "compress.prune.recovery_epochs=6", "compress.prune.recovery_learning_rate=2e-4",
    ),
    THREE_PRUNED: (
        "compress.prune.layers=1", "compress.prune.layer_choice=least_harm",
        "compress.prune.heads=0.5", "compress.prune.neurons=0.5",
        "compress.prune.recovery_epochs=8", "compress.prune.recovery_learning_rate=2e-4",
    ),
}  # fmt: skip


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA",
              default=REPOSITORY.parent / "shared" / "data")  # fmt: skip
@click.option("--work", type=click.Path(path_type=Path),
              default=Path(tempfile.gettempdir()) / "nightmill-distillation",
              help="Where finished steps are kept.")  # fmt: skip
@click.option("--weights", type=click.Path(path_type=Path), default=default_folder(),
              help="Where the teacher's weights are kept.")  # fmt: skip
@click.option("--rows", type=int, help="Records to train on, for a try: of the first labels only.")
@click.option("--setting", "settings", multiple=True, help="KEY=VALUE of every model.")
@click.option("--for", "own", type=(click.Choice(list(RECIPES)), str), multiple=True,
              help="A model, and KEY=VALUE of it alone.")  # fmt: skip
@click.option("--speed-rows", default=512, show_default=True, help="Texts that are timed.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(
    *, data: Path, work: Path, weights: Path, rows: int | None, settings: tuple[str, ...],
    own: tuple[tuple[str, str], ...], speed_rows: int, rounds: int, write: bool,
) -> None:  # fmt: skip
    """Take every step, then measure all models in turns and write."""
    work.mkdir(parents=True, exist_ok=True)
    folder = data / TASK if rows is None else subset(data / TASK, work / f"rows-{rows}", rows)
    settings = ("train.precision=bf16", *settings)
    models = {name: tuple(value for model, value in own if model == name) for name in RECIPES}
    chain = Chain(work.resolve(), folder, settings, models)
    lines = chain.lines(fetch_teacher(weights))
    texts = pq.read_table(folder / "test.parquet", columns=["text"])["text"].to_pylist()
    hubs, rates = measure(chain, lines, texts[:speed_rows], weights, rounds=rounds)
    text = page(lines, rates, hubs=hubs, minutes=chain.minutes, settings=chain.told(),
                texts=min(speed_rows, len(texts)), rounds=rounds, rows=rows)  # fmt: skip
    click.echo(text)
    if write:
        write_section("distillation", text)


@dataclass(frozen=True)
class Chain:
    """The steps, by `own` settings of each model on top of `RECIPES` and those of all."""

    work: Path
    folder: Path
    settings: tuple[str, ...]
    own: dict[str, tuple[str, ...]]

    @property
    def home(self) -> Home:
        return Home(self.work / f"home-{digest_of([str(self.folder)])[:8]}")

    @property
    def minutes(self) -> dict[str, float]:
        """Minutes of each step that is done."""
        path = self.work / "minutes.json"
        found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def lines(self, weights: Path) -> list[Line]:
        """Every model of the table, made where it is not there yet."""
        self.home.tasks.mkdir(parents=True, exist_ok=True)
        task = task_of(Trial(TASK, ""), self.folder)
        (self.home.tasks / f"{TASK}.yaml").write_text(yaml.safe_dump(task))
        teacher = self.trained(TEACHER, f"train.backbone=path:{weights}")
        six = self.trained(SIX, f"distil.teacher=run:{teacher.run}")
        # The first one's layers are what it is made of.
        both = f"[run:{six.run},run:{teacher.run}]"
        three = self.trained(THREE, f"distil.teacher={both}", answered=six)
        made = [
            (TEACHER, teacher, FP32), (SIX, six, FP32), (SIX, six, INT8), (THREE, three, FP32),
            (THREE, three, INT8), (SIX_PRUNED, self.cut(six, SIX_PRUNED), INT8),
            (THREE_TRIMMED, self.cut(three, THREE_TRIMMED), INT8),
            (THREE_PRUNED, self.cut(three, THREE_PRUNED), INT8),
        ]  # fmt: skip
        return [Line(name, self.bundled(name, step, prefer)) for name, step, prefer in made]

    def cut(self, step: Step, name: str) -> Step:
        """The run that is bundled pruned."""
        return Step(step.run, (*step.settings, *RECIPES[name], *self.own[name]))

    def trained(self, name: str, *settings: str, answered: Step | None = None) -> Step:
        """The fine-tuned run of these settings.

        Its second teacher has `answered` the same texts for another student already.
        """
        asked = (*self.settings, *settings, *RECIPES[name], *self.own[name])
        run = f"{name.replace(' ', '-')}-{digest_of(asked)[:8]}"
        folder = TrainingRun(self.home, TASK, run).folder
        if not (folder / "finetune.json").exists():
            if answered is not None:
                folder.mkdir(parents=True, exist_ok=True)
                known = TrainingRun(self.home, TASK, answered.run).folder / "teacher-0.parquet"
                shutil.copyfile(known, folder / "teacher-1.parquet")
            self.command(f"train {name}", "finetune", TASK, "--run", run, *asked)
        return Step(run, asked)

    def bundled(self, name: str, step: Step, prefer: str) -> Path:
        """A copy of the run's bundle of these settings, which the next one takes the place of."""
        target = self.work / "bundles" / digest_of([step.run, step.settings, prefer])[:12]
        if not target.exists():
            self.command(
                f"bundle {name}", "bundle", TASK, "--run", step.run, *step.settings, prefer
            )
            scratch = target.with_suffix(".part")
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(TrainingRun(self.home, TASK, step.run).bundle, scratch)
            scratch.rename(target)
        return target

    def command(self, what: str, *arguments: str) -> None:
        """Runs a command and adds up its minutes."""
        started = time.monotonic()
        nightmill(self.home, *arguments)
        took = self.minutes.get(what, 0.0) + (time.monotonic() - started) / 60
        told = json.dumps(self.minutes | {what: round(took, 1)})
        write_atomically(self.work / "minutes.json", told.encode())

    def told(self) -> dict[str, tuple[str, ...]]:
        """What differs from the defaults, by model."""
        own = {name: (*RECIPES[name], *more) for name, more in self.own.items()}
        return {"all": self.settings} | own


@dataclass(frozen=True)
class Step:
    """A fine-tuned run and the settings that its bundle is made with."""

    run: str
    settings: tuple[str, ...]


def measure(
    chain: Chain, lines: list[Line], texts: list[str], weights: Path, *, rounds: int
) -> tuple[dict[str, str], dict[str, float]]:
    """The teacher's pipeline in its best setting of each type, and the rows a second and core of all."""
    teacher = BundleSpec.read(lines[0].bundle / BUNDLE_FILE)
    checkpoint = TrainingRun(chain.home, TASK, teacher.training_run).checkpoint
    folder = hub_model(checkpoint, weights / "all-mpnet-base-v2", chain.work / "hub", teacher)
    with Host(sorted(os.sched_getaffinity(0))) as host:
        max_tokens = teacher.task.window.max_tokens
        hubs = {
            pipeline_in(dtype): best_setting(
                host, folder, texts, max_tokens=max_tokens, dtype=dtype
            )
            for dtype in DTYPES
        }
        ways: dict[str, Way] = {**hubs}
        for line in lines:
            ways[line.key] = night = Night(line.bundle, chain.work / "plans")
            host.calibrate(night)
        told = {name: str(hub) for name, hub in hubs.items()}
        return told, rates_of(host, ways, texts, rounds=rounds)


def hub_model(checkpoint: Path, weights: Path, folder: Path, spec: BundleSpec) -> Path:
    """The teacher's encoder as the pipeline takes it, with a head that costs what ours does."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    labels = sum(len(labels.labels) for labels in spec.task.label_sets.values())
    AutoModelForSequenceClassification.from_pretrained(
        checkpoint, num_labels=labels
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(weights).save_pretrained(folder)
    return folder


def subset(source: Path, folder: Path, rows: int) -> Path:
    """Files of the first labels only, so that so few records are some of each."""
    folder.mkdir(parents=True, exist_ok=True)
    known = pq.read_table(source / "train.parquet", columns=["label"])["label"].to_pylist()
    labels = sorted({*known})[: max(2, rows // 40)]
    for split in ("train", "test"):
        table = pq.read_table(source / f"{split}.parquet")
        wanted: Any = table.filter(pc.is_in(table["label"], pa.array(labels)))
        some = range(0, len(wanted), max(1, len(wanted) // rows))  # labels stand in blocks
        pq.write_table(wanted.take(list(some)), folder / f"{split}.parquet")
    return folder


if __name__ == "__main__":
    main()
