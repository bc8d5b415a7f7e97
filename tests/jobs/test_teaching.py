"""A student and its teachers, from the loop to the command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from safetensors import safe_open

from jobs.teachers import find_teacher, keep_settings
from jobs.teaching import find_teaching
from jobs.training import learn, prepare
from pipeline.bundle import load_spec
from pipeline.heads import head_slices
from pipeline.model.card import model_card
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.distil.lesson import LESSON_FILE, Lesson, answer_file, more_path, new_student
from pipeline.model.labelled import Example, save_examples
from pipeline.window import Window
from schemas.bundle import TOKENIZER_FILE
from schemas.distil import DistilConfig
from schemas.distilled import Distilled, TeacherRef
from schemas.errors import ArtifactError, ConfigError
from schemas.load import load_task
from schemas.training import Finetuned, TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from click.testing import Result

    from pipeline.model.distil.teacher import Logits
    from pipeline.model.fit import Progress
    from pipeline.model.labelled import Split
    from schemas.home import Home
    from schemas.task import TaskConfig

    Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("one_thread")
QUEUES = ("billing", "technical", "shipping")
KEYWORD = 20  # the token of the first queue


def record(number: int, *, split: Split = "train", known: bool = True, turn: int = 0) -> Example:
    """A record whose one keyword says its queue; with `turn` the label says another."""
    queue = number % 3
    ids = (2, 40 + number % 5, KEYWORD + queue, 40 + number % 7, 3)
    return Example(
        f"r{number}", f"{number:032x}", split, "en", ("", "text"),
        (Window(ids, (0,) * len(ids), 0, 1),),
        {"queue": (queue + turn) % 3 if known else None, "topics": None},
    )  # fmt: skip


class KnowingTeacher:
    """Is sure of the queue that the keyword says."""

    def logits(self, examples: Sequence[Example]) -> Logits:
        found = np.zeros((len(examples), 5), dtype=np.float32)
        for row, example in enumerate(examples):
            found[row, example.windows[0].input_ids[2] - KEYWORD] = 6.0
        return found


def trained(
    task: TaskConfig, folder: Path, examples: list[Example], more: list[Example], **distil: Any
) -> tuple[dict[str, torch.Tensor], Progress]:
    """What the loop makes of these records, with a teacher where `distil` is given."""
    folder.mkdir()
    recipe = {"dropout": 0.0, "epochs": 4, "patience_epochs": 9, "learning_rate": 3e-3}
    task = task.model_copy(update={"train": task.train.model_copy(update=recipe)})
    if distil:
        config = DistilConfig.model_validate({"teacher": "run:knowing", **distil})
        task = task.model_copy(update={"distil": config})
        answer_file(folder, 0, digest="d", task=task).ask(KnowingTeacher(), [*examples, *more])
        save_examples(more, more_path(folder))
        Lesson(digests=("d",)).write(folder / LESSON_FILE)
    save_examples(examples, folder / "examples.parquet")
    parts = prepare(task, folder)
    progress = learn(parts, task, folder, pad_id=0, on_epoch=lambda *_: None)
    return parts.model.state_dict(), progress


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.fixture
def some() -> list[Example]:
    valid = [record(number, split="valid") for number in range(100, 130)]
    return [*(record(number) for number in range(24)), *valid]


def test_alpha_0_is_plain_training_to_the_bit(
    tiny_task: TaskConfig, tmp_path: Path, some: list[Example]
) -> None:
    plain, _ = trained(tiny_task, tmp_path / "plain", some, [])
    zero, progress = trained(tiny_task, tmp_path / "zero", some, [], alpha=0.0)
    half, _ = trained(tiny_task, tmp_path / "half", some, [], alpha=0.5)
    assert same(plain, zero)
    assert "distil_loss" not in progress.history[0]
    assert not same(plain, half)


def test_alpha_1_uses_no_label_of_training(
    tiny_task: TaskConfig, tmp_path: Path, some: list[Example]
) -> None:
    wrong = [record(number, turn=1) for number in range(24)] + some[24:]
    right, progress = trained(tiny_task, tmp_path / "right", some, [], alpha=1.0)
    other, _ = trained(tiny_task, tmp_path / "wrong", wrong, [], alpha=1.0)
    assert same(right, other)
    assert progress.history[-1]["train_loss"] == pytest.approx(
        progress.history[-1]["distil_loss"], rel=1e-4
    )


def test_unlabelled_records_teach_what_few_labels_do_not(
    tiny_task: TaskConfig, tmp_path: Path, some: list[Example]
) -> None:
    few = [*some[:2], *some[24:]]  # of the third queue no record has a label
    more = [record(number, known=False) for number in range(200, 260)]
    _, without = trained(tiny_task, tmp_path / "without", few, [])
    _, taught = trained(tiny_task, tmp_path / "taught", few, more, alpha=0.9)
    assert without.best_metric < 0.7
    assert taught.best_metric > 0.9


def test_a_run_that_was_not_taught_says_what_is_missing(
    tiny_task: TaskConfig, tmp_path: Path, some: list[Example]
) -> None:
    save_examples(some, tmp_path / "examples.parquet")
    task = tiny_task.model_copy(update={"distil": DistilConfig(teacher=("run:a",))})
    with pytest.raises(ArtifactError, match=r"lesson.json does not exist"):
        prepare(task, tmp_path)


def test_a_teacher_that_is_not_there_is_named(home: Home) -> None:
    with pytest.raises(ArtifactError, match=r"training run 'big' is not fine-tuned"):
        find_teacher("run:big", "tiny", home)


@pytest.fixture
def taught_home(train_home: Home) -> Home:
    """A home with 120 labelled rows, and 30 unlabelled ones of a night."""
    words = ("invoice", "crash", "parcel")
    rows = [
        {"ticket_id": f"t{n}", "subject": "help", "body": f"the {words[n % 3]} {n} again today",
         "queue": QUEUES[n % 3], "topics": []}
        for n in range(120)
    ]  # fmt: skip
    for place, some in (("labelled/tiny", rows), ("incoming/tiny/date=2026-11-01", rows[:30])):
        path = train_home.root / place / "rows.jsonl"
        path.parent.mkdir(parents=True)
        shown = [
            row | ({"body": f"please {row['body']}"} if "date" in place else {}) for row in some
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in shown), encoding="utf-8")
    return train_home


@pytest.fixture
def big_run(taught_home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path) -> TrainingRun:
    """A run `big` of the task, as fine-tuning would leave it; its weights are random ones."""
    place = TrainingRun(taught_home, "tiny", "big")
    place.folder.mkdir(parents=True)
    model = new_classifier(tiny_task.train, head_slices(tiny_task.heads))
    save_checkpoint(model, place.checkpoint, tokenizer=tiny_tokenizer_path)
    keep_settings(tiny_task, place)
    Finetuned(
        run="big", fingerprint="f", mlflow_run_id="m", data_digest="0" * 64, cleaner_version="1",
        special_tokens=(), pad_id=0, rows={}, rejected={}, epochs=1, best_epoch=1,
        valid_macro_f1=0.5, seconds=1.0,
    ).write(place.folder / "finetune.json")  # fmt: skip
    return place


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_student_of_a_run_by_command(
    taught_home: Home, big_run: TrainingRun, nightmill: Run, steps_of: Any
) -> None:
    settings = (
        "distil.teacher=run:big", "distil.student.layers=[0]", "distil.alpha=0.8",
        "distil.hidden={}", "distil.relations={}", "distil.augment={}",
        "distil.unlabelled=incoming/tiny/date={date}/*.jsonl",
    )  # fmt: skip
    outcome = nightmill("finetune", "tiny", "--run", "small", *settings, home=taught_home)
    assert outcome.exit_code == 0, outcome.stderr
    place = TrainingRun(taught_home, "tiny", "small")
    done = place.finetuned()
    told = done.distilled
    assert told is not None
    assert told.teachers == (find_teacher("run:tiny/big", "other", taught_home).ref,)
    assert told.student == "layers 0 of the teacher"
    assert told.student_valid_macro_f1 == done.valid_macro_f1
    assert 0 < told.unlabelled <= 30
    assert told.augmented > 60
    assert set(told.test_macro_f1) == {"queue", "topics"}
    assert json.loads((place.checkpoint / "config.json").read_text())["num_hidden_layers"] == 1
    assert not any("projection" in name for name in weight_names(place.checkpoint))
    run = MlflowClient(taught_home.tracking_uri).get_run(done.mlflow_run_id).data
    assert run.tags["distilled_from"] == str(told.teachers[0])
    assert run.metrics["teacher.kept"] == pytest.approx(told.kept)
    steps = steps_of(taught_home, done.mlflow_run_id)
    assert set(steps) == {"finetune", "teach"}
    teach = steps["teach"]
    assert teach.data.tags["teacher.0"] == str(told.teachers[0])
    assert (teach.data.params["distil.alpha"], teach.data.params["distil.temperature"]) == (
        "0.8", "2.0",
    )  # fmt: skip
    used = {(one.tags[0].value, one.dataset.digest) for one in teach.inputs.dataset_inputs}
    assert ("teacher 0", told.teachers[0].digest[:12]) in used
    assert "unlabelled" in {role for role, _ in used}
    history = json.loads((place.folder / "progress.json").read_text())["history"]
    assert history[-1]["layer_loss"] < history[0]["layer_loss"]
    # The same teacher and settings are the same run; another teacher under that name is another.
    again = nightmill("finetune", "tiny", "--run", "small", *settings, home=taught_home)
    assert "is already fine-tuned with this data and these settings" in again.stderr
    config = big_run.checkpoint / "config.json"
    config.write_text(config.read_text() + "\n")
    changed = nightmill("finetune", "tiny", "--run", "small", *settings, home=taught_home)
    assert changed.exit_code == 4
    assert "exists with other data or settings" in changed.stderr


def test_a_student_of_layers_begins_as_its_teacher(
    taught_home: Home, big_run: TrainingRun, tmp_path: Path
) -> None:
    overrides = ["distil.teacher=run:big", "distil.student.layers=[0, 1]"]
    task = load_task("tiny", taught_home, overrides=overrides)
    teaching = find_teaching(task, taught_home, spool=tmp_path)
    assert teaching is not None
    place = TrainingRun(taught_home, "tiny", "small")
    place.folder.mkdir()
    teaching.start(place)
    lesson = Lesson(digests=("d",), initial=str(place.student))
    heads = head_slices(task.heads)
    student = new_student(task, heads, lesson).state_dict()
    teacher = load_checkpoint(big_run.checkpoint, task.train, heads).state_dict()
    assert same(teacher, student)
    assert place.tokenizer.read_bytes() == (big_run.checkpoint / TOKENIZER_FILE).read_bytes()


def test_layers_are_not_matched_across_vocabularies(
    taught_home: Home, big_run: TrainingRun, tmp_path: Path
) -> None:
    tokenizer = big_run.checkpoint / TOKENIZER_FILE
    tokenizer.write_text(tokenizer.read_text().replace('"invoice"', '"inv01ce"'))
    overrides = ["distil.teacher=run:big", "distil.hidden={}"]
    task = load_task("tiny", taught_home, overrides=overrides)
    teaching = find_teaching(task, taught_home, spool=tmp_path)
    assert teaching is not None
    with pytest.raises(ConfigError, match=r"run:tiny/big: .* to have one tokenizer, got two"):
        teaching.start(TrainingRun(taught_home, "tiny", "big"))


def test_the_card_says_who_taught_and_what_was_kept(tiny_bundle: Path) -> None:
    spec = load_spec(tiny_bundle)
    metrics = dict.fromkeys(spec.metrics, spec.metrics["queue"])
    spec = spec.model_copy(update={"fp32_metrics": metrics})
    assert "Teachers" not in model_card(spec)
    told = Distilled(
        teachers=(TeacherRef(address="models:/tiny/1", digest="abcdef0123456789"),),
        student="layers 0 of the teacher", teacher_valid_macro_f1=0.8,
        student_valid_macro_f1=0.792, test_macro_f1={"queue": 0.625},
    )  # fmt: skip
    metrics = dict.fromkeys(spec.metrics, spec.metrics["queue"])
    known = {"distilled": told, "metrics": metrics, "fp32_metrics": metrics}
    card = model_card(spec.model_copy(update=known))
    assert "Distilled from `models:/tiny/1 (abcdef012345)`, starting from layers 0" in card
    assert "it keeps 99.0% of their macro-F1 (0.7920 of 0.8000)" in card
    assert "| queue | 0.5000 | 0.6250 | 80.0% |" in card


def weight_names(folder: Path) -> list[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return list(file.keys())
