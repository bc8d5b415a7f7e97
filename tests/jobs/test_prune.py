"""Pruning by command line: what is kept, what is done once, and what a killed run goes on from."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from mlflow import MlflowClient

from jobs import prune as job
from jobs import pruning
from pipeline.engines.registry import Registry
from pipeline.model.distil.lesson import LESSON_FILE, Lesson, answer_file, more_path
from pipeline.model.labelled import load_examples, save_examples
from pipeline.model.prune.pruner import Pruner
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.distil import DistilConfig
from schemas.load import load_task
from schemas.prune import Cut, Pruning, PruningFolder
from schemas.task import TaskConfig
from schemas.training import Finetuned, TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.testing import Result

    from pipeline.model.distil.teacher import Logits
    from pipeline.model.labelled import Example
    from schemas.home import Home

    Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("one_thread")
KEYWORDS = {"billing": "invoice", "technical": "crash", "shipping": "parcel"}
FILLER = ["the", "a", "my", "i", "it", "is", "was", "not", "please", "help", "today", "again"]
HALF = ["compress.prune.neurons=0.5", "compress.prune.heads=0.5", "compress.prune.curve=[0.5]"]


@pytest.fixture
def train_home(train_home: Home) -> Home:
    """A home with labelled rows whose words decide the labels."""
    chooser, records = random.Random(3), []
    for number in range(240):
        queue = list(KEYWORDS)[number % 3]
        words = [*chooser.choices(FILLER, k=5), KEYWORDS[queue]]
        records.append(
            {"ticket_id": f"t{number}", "subject": " ".join(words), "body": str(number),
             "queue": queue, "topics": chooser.choice([[], ["price"]])}
        )  # fmt: skip
    path = train_home.root / "labelled/tiny/rows.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return train_home


@pytest.fixture
def finetuned(train_home: Home, tiny_task: TaskConfig, make_run: Any) -> Finetuned:
    return make_run(train_home, tiny_task)


@pytest.fixture
def make_run(tiny_tokenizer_path: Path) -> Any:
    """Leaves what `finetune` does, untrained, so that no worker has to start."""

    def make(home: Home, task: TaskConfig) -> Finetuned:
        from pipeline.engines.tokenizer import BackboneTokenizer
        from pipeline.heads import head_slices
        from pipeline.labelled_rows import load_labelled, survey_labelled
        from pipeline.model.checkpoint import new_classifier, save_checkpoint
        from pipeline.model.labelled import save_examples
        from pipeline.spool import temporary_spool

        place = TrainingRun(home, "tiny", "trial")
        place.folder.mkdir(parents=True)
        place.tokenizer.write_bytes(tiny_tokenizer_path.read_bytes())
        tokenizer = BackboneTokenizer(place.tokenizer)
        with temporary_spool(home, "tiny") as spool:
            labelled, test = survey_labelled(task, home, spool=spool)
            data = load_labelled(task, labelled, test, tokenizer=tokenizer)
        save_examples(data.examples, place.examples)
        model = new_classifier(task.train, head_slices(task.heads))
        save_checkpoint(model, place.checkpoint, tokenizer=place.tokenizer)
        done = Finetuned(
            run="trial", fingerprint="f" * 64, mlflow_run_id="none", data_digest=data.digest,
            cleaner_version="1", special_tokens=(), pad_id=0, rows=data.rows, rejected={},
            epochs=1, best_epoch=1, valid_macro_f1=0.5, seconds=1.0,
        )  # fmt: skip
        done.write(place.folder / "finetune.json")
        return done

    return make


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """MLflow's part, as figures by name."""
    figures: dict[str, float] = {}

    class Noting:
        def __init__(self, home: Home) -> None: ...

        def log_metrics(self, run_id: str, metrics: dict[str, float], *, step: int = 0) -> None:
            figures.update({f"{name}@{step}": value for name, value in metrics.items()})

        def tag(self, run_id: str, tags: dict[str, str]) -> None:
            figures.update(dict.fromkeys(tags.values(), 1.0))

        def log_file(self, run_id: str, path: Path, *, under: str) -> None:
            figures[f"{under}/{path.name}"] = 1.0

    monkeypatch.setattr(job, "Registry", Noting)
    return figures


def test_a_cut_without_recovery_ships_as_it_is_and_another_takes_its_place(
    train_home: Home, nightmill: Run, finetuned: Finetuned, logged: dict[str, float]
) -> None:
    settings = [*HALF, "compress.prune.recovery_epochs=0"]
    outcome = nightmill("prune", "tiny", "--run", "trial", *settings, home=train_home)
    assert outcome.exit_code == 0, outcome.stderr
    place = TrainingRun(train_home, "tiny", "trial")
    done = Pruning.read(place.folder / "pruning.json")
    assert (done.best_epoch, done.valid_macro_f1) == (0, done.valid_macro_f1_cut)
    assert logged["prune.flops_share@0"] == done.flops_share < 0.6
    assert logged["prune.curve.neurons.valid_macro_f1@50"] == done.curve[1].valid_macro_f1
    assert logged["pruning/pruning.json"] == 1.0
    (lower, upper) = done.layers
    assert (
        f"0: {lower.heads} heads, {lower.neurons} neurons, "
        f"1: {upper.heads} heads, {upper.neurons} neurons"
    ) in logged
    assert (place.pruned / "pruned.json").exists()

    other = ["compress.prune.layers=1", "compress.prune.recovery_epochs=0"]
    outcome = nightmill("prune", "tiny", "--run", "trial", *other, home=train_home)
    assert outcome.exit_code == 0, outcome.stderr
    found = Pruning.read(place.folder / "pruning.json")
    assert [row.model_dump() for row in found.layers] == [{"layer": 0, "heads": 2, "neurons": 64}]


def test_a_killed_run_neither_cuts_nor_trains_twice(
    train_home: Home, finetuned: Finetuned, logged: dict[str, float],
    monkeypatch: pytest.MonkeyPatch, nightmill: Run,
) -> None:  # fmt: skip
    calls: list[str] = []
    cut_for_real = Pruner.prune

    def cut(self: Pruner, *given: Any, **named: Any) -> Cut:
        calls.append("cut")
        return cut_for_real(self, *given, **named)

    def recover(_: Any, __: Any, work: PruningFolder, **named: Any) -> None:
        calls.append("recover")
        if calls.count("recover") == 1:
            raise KeyboardInterrupt
        assert (work.start / "pruned.json").exists()
        work.start.rename(work.recovered)
        told = {"best_epoch": 1, "best_metric": 1.0, "history": [{"epoch": 1, "valid_macro_f1": 1}]}
        work.progress.write_text(json.dumps(told))

    def log(*_: Any) -> None:
        calls.append("log")
        if calls.count("log") == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Pruner, "prune", cut)
    monkeypatch.setattr(pruning, "run_recovery", recover)
    monkeypatch.setattr(job, "_log_to_mlflow", log)
    task = load_task("tiny", train_home, overrides=HALF)
    context = job.Context(train_home)
    settings = task.compress.prune
    assert settings is not None
    for _ in range(2):  # killed in recovery, then while it logs
        with pytest.raises(KeyboardInterrupt):
            job.prune(task, settings, context, finetuned)
    done = job.prune(task, settings, context, finetuned)
    assert calls == ["cut", "recover", "recover", "log", "log"]
    assert (done.valid_macro_f1, done.best_epoch) == (1.0, 1)
    assert job.checkpoint_to_ship(task, context, finetuned).name == "pruned"
    assert calls == ["cut", "recover", "recover", "log", "log"]
    plain = load_task("tiny", train_home)
    assert job.checkpoint_to_ship(plain, context, finetuned).name == "checkpoint"


def test_a_recovery_that_is_worse_does_not_ship(tmp_path: Path, train_home: Home) -> None:
    size = {"parameters": 4, "forward_mflops": 1.0, "megabytes_fp32": 1.0, "megabytes_int8": 1.0}
    cut = Cut.model_validate(
        {"fingerprint": "f", "layers": [], "before": size, "after": size, "flops_share": 1.0,
         "valid_macro_f1_whole": 0.9, "valid_macro_f1_cut": 0.8}
    )  # fmt: skip
    work, place = PruningFolder(tmp_path), TrainingRun(train_home, "tiny", "trial")
    for folder in (work.start, work.recovered):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    for metric, name, epoch in ((0.79, "start", 0), (0.8, "recovered", 2)):
        progress = {"best_metric": metric, "best_epoch": 2, "history": []}
        done = job._better(place, work, cut, progress, seconds=1.0)
        assert (place.pruned / "name").read_text() == name
        assert (done.valid_macro_f1, done.best_epoch) == (0.8, epoch)


@pytest.fixture
def cut(train_home: Home, finetuned: Finetuned, logged: dict[str, float], nightmill: Run) -> Any:
    """What a worker of the recovery is told, with the cut model where it looks for it."""
    settings = [*HALF, "compress.prune.recovery_epochs=0"]
    assert nightmill("prune", "tiny", "--run", "trial", *settings, home=train_home).exit_code == 0
    place = TrainingRun(train_home, "tiny", "trial")
    work = PruningFolder(place.folder / "pruning")
    work.folder.mkdir()
    place.pruned.rename(work.start)
    task = load_task("tiny", train_home, overrides=HALF)
    return {
        "task": task.model_dump(mode="json"), "folder": str(work.folder), "threads": 1,
        "run": str(place.folder), "examples": str(place.examples),
        "tokenizer": str(place.tokenizer), "pad_id": 0,
    }  # fmt: skip


def test_a_worker_trains_the_cut_model(cut: Any, fake_train: Any) -> None:
    pruning._worker(cut)
    work = PruningFolder(Path(cut["folder"]))
    assert not (work.folder / "failure.json").exists()
    progress = json.loads(work.progress.read_text())
    assert (progress["epoch"], len(progress["history"])) == (1, 1)
    assert "distil_loss" not in progress["history"][0]
    shapes = [json.loads((f / "pruned.json").read_text()) for f in (work.start, work.recovered)]
    assert shapes[0] == shapes[1]
    weights = [(f / "model.safetensors").read_bytes() for f in (work.start, work.recovered)]
    assert weights[0] != weights[1]
    assert fake_train.metrics[0]["is_best"] is True


def test_a_cut_model_learns_from_the_teachers_of_its_run(cut: Any, fake_train: Any) -> None:
    run, config = Path(cut["run"]), DistilConfig(teacher=("run:big",), alpha=1.0)
    task = TaskConfig.model_validate(cut["task"]).model_copy(update={"distil": config})
    examples = load_examples(Path(cut["examples"]))
    without_label = [replace(examples[0], record_id="more", targets=dict.fromkeys(task.heads))]
    answer_file(run, 0, digest="d", task=task).ask(Sure(), [*examples, *without_label])
    save_examples(without_label, more_path(run))
    Lesson(digests=("d",)).write(run / LESSON_FILE)
    pruning._worker(cut | {"task": task.model_dump(mode="json")})
    assert not (Path(cut["folder"]) / "failure.json").exists()
    (epoch,) = json.loads(PruningFolder(Path(cut["folder"])).progress.read_text())["history"]
    # With alpha 1 labels count nothing, so that there is no other loss.
    assert epoch["train_loss"] == pytest.approx(epoch["distil_loss"], rel=1e-4)
    assert epoch["distil_loss"] > 0


class Sure:
    """A teacher that says the same of every text."""

    def logits(self, examples: Sequence[Example]) -> Logits:
        return np.tile(np.array([6, 0, 0, 3, -3], dtype=np.float32), (len(examples), 1))


def test_how_teachers_count_in_recovery_makes_another_cut(
    train_home: Home, finetuned: Finetuned
) -> None:
    task = load_task("tiny", train_home, overrides=HALF)
    assert task.compress.prune is not None
    made = [
        job._fingerprint(task.model_copy(update={"distil": distil}), task.compress.prune, finetuned)
        for distil in (
            None, DistilConfig(teacher=("run:big",)), DistilConfig(teacher=("run:big",), alpha=0.9)
        )
    ]  # fmt: skip
    assert len({*made}) == 3


def test_a_run_that_is_not_asked_to_be_smaller_is_told(train_home: Home, nightmill: Run) -> None:
    for arguments, message in (
        ([], "prune needs --run"),
        (["--run", "trial"], "compress.prune is not set; set compress.prune.neurons=0.25"),
        (["--run", "trial", "compress.prune.heads=0"], "prune cuts nothing"),
        (["--run", "trial", "compress.prune.heads=1"], "compress.prune.heads"),
        (["--run", "trial", "compress.prune.layers=[1,1]"], "layers names one twice"),
    ):
        outcome = nightmill("prune", "tiny", *arguments, home=train_home)
        assert outcome.exit_code == 2
        assert message in outcome.stderr
    outcome = nightmill("prune", "tiny", "--run", "none", *HALF, home=train_home)
    assert outcome.exit_code == 4
    assert "'none' is not fine-tuned" in outcome.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_bundle_is_made_of_the_pruned_and_recovered_model(
    train_home: Home, nightmill: Run, finetuned: Finetuned, monkeypatch: pytest.MonkeyPatch,
    steps_of: Any,
) -> None:  # fmt: skip
    place = TrainingRun(train_home, "tiny", "trial")
    run_id = Registry(train_home).start_run("tiny", "trial", params={})
    finetuned = finetuned.model_copy(update={"mlflow_run_id": run_id})
    finetuned.write(place.folder / "finetune.json")
    (place.folder / "progress.json").write_text('{"history": []}')
    settings = [*HALF, "compress.prefer=[fp32]"]
    outcome = nightmill("bundle", "tiny", "--run", "trial", *settings, home=train_home)
    assert outcome.exit_code == 0, outcome.stderr
    assert "recovery, epoch 1: train loss" in outcome.stderr
    assert "the pruned model ships with valid macro-F1" in outcome.stderr
    done = Pruning.read(place.folder / "pruning.json")
    assert (sum(row.heads for row in done.layers), len(done.history)) == (2, 1)
    assert not (place.folder / "pruning").exists()
    whole, cut = (place.folder / name / "model.safetensors" for name in ("checkpoint", "pruned"))
    gone = done.before.parameters - done.after.parameters
    assert whole.stat().st_size - cut.stat().st_size == pytest.approx(4 * gone, abs=2000)
    tensors = onnx.load(str(place.bundle / "model.onnx")).graph.initializer
    numbers = sum(math.prod(tensor.dims) for tensor in tensors)
    assert numbers == pytest.approx(done.after.parameters, abs=gone / 4)
    spec = BundleSpec.read(place.bundle / BUNDLE_FILE)
    assert spec.task.compress.prune is not None
    assert all(gate.passed for gate in spec.gates)
    page = (place.folder / "model.html").read_text(encoding="utf-8")
    assert f"validation macro-F1 {done.valid_macro_f1_whole:.4f} whole" in page
    metrics = MlflowClient(train_home.tracking_uri).get_run(run_id).data.metrics
    assert metrics["prune.parameters"] == done.after.parameters
    steps = steps_of(train_home, run_id)
    assert set(steps) == {"prune", "bundle"}
    assert steps["prune"].data.params["compress.prune.heads"] == "0.5"
    assert steps["prune"].data.metrics["parameters"] == done.after.parameters
    assert not any("prune" in name for name in steps["bundle"].data.params)
    assert metrics["prune.valid_macro_f1"] == done.valid_macro_f1

    monkeypatch.setattr(Pruner, "prune", None)  # nothing is cut or trained again
    again = nightmill("prune", "tiny", "--run", "trial", *settings, home=train_home)
    assert again.exit_code == 0, again.stderr
    assert "is already pruned with these settings" in again.stderr
