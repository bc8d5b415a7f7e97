"""Distillation around fine-tuning: teachers found, asked and measured before the student starts."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file

from jobs.teachers import find_teacher
from pipeline.heads import head_slices
from pipeline.model.backbone import load_encoder, save_tokenizer
from pipeline.model.checkpoint import HEADS_FILE
from pipeline.model.distil.lesson import LESSON_FILE, Lesson, answer_file, more_path
from pipeline.model.distil.more_texts import augmented_examples, unlabelled_examples
from pipeline.model.distil.picked_layers import pick_layers
from pipeline.model.distil.soft_targets import mean_answers
from pipeline.model.distil.teacher import ReadingTeacher, head_columns
from pipeline.model.labelled import known_rows, label_matrix, save_examples
from pipeline.model.metrics import gate_metric
from pipeline.model.pretrain.corpus import survey_texts
from schemas.bundle import TOKENIZER_FILE
from schemas.distilled import Distilled
from schemas.errors import ConfigError
from schemas.fingerprint import digest_of, digest_of_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.engines.registry import Registry
    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.model.distil.teacher import Logits, TeacherSource
    from pipeline.model.labelled import Example
    from pipeline.survey import Survey
    from schemas.distil import DistilConfig, StudentConfig
    from schemas.home import Home
    from schemas.task import TaskConfig
    from schemas.training import TrainingRun

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Teaching:
    """What `distil` asks of one run; of the `sources` the first one's layers count."""

    task: TaskConfig
    config: DistilConfig
    sources: tuple[TeacherSource, ...]
    unlabelled: Survey | None

    @property
    def digest(self) -> str:
        """Hash over teachers, settings and unlabelled files; an alias counts as what it names."""
        settings = self.config.model_dump(mode="json", exclude={"teacher"})
        files = [] if self.unlabelled is None else [f.sha256 for f in self.unlabelled.inputs]
        return digest_of([settings, [source.ref.digest for source in self.sources], files])

    def start(self, place: TrainingRun) -> None:
        """Leaves the student's tokenizer, and its first weights where it is made of layers.

        Raises:
            ConfigError: the layers or vocabularies do not fit.
            ArtifactError: files of the teacher or the backbone are missing or damaged.
        """
        shutil.rmtree(place.student, ignore_errors=True)
        picked = self.config.student
        if picked is not None and picked.of == "teacher":
            source = self.sources[0].checkpoint_folder / TOKENIZER_FILE
            shutil.copyfile(source, place.tokenizer)
        else:
            save_tokenizer(self.task.train.backbone, place.tokenizer)
        if picked is not None:
            _make_student(self.task, self.sources[0], picked, place.student)
        if self.config.follows_layers:
            self._check_vocabulary(place.tokenizer)

    def teach(
        self, place: TrainingRun, examples: Sequence[Example], *, tokenizer: BackboneTokenizer
    ) -> Distilled:
        """Asks the teachers about all texts; leaves their answers and the workers' lesson.

        Answers what `student_outcome` completes; the student's figure is 0 until then.

        Raises:
            ConfigError: heads or labels do not fit.
            ArtifactError: a teacher's files are missing or damaged.
        """
        found = self._unlabelled(examples, tokenizer)
        changed = self._augmented([*_train(examples), *found], tokenizer)
        more = [*found, *changed]
        save_examples(more, more_path(place.folder))
        answers = [
            answer_file(place.folder, number, digest=source.ref.digest, task=self.task).ask(
                ReadingTeacher(source, self.task), [*examples, *more]
            )
            for number, source in enumerate(self.sources)
        ]
        taught = self._measure(np.stack(answers), examples).model_copy(
            update={"unlabelled": len(found), "augmented": len(changed)}
        )
        self._lesson(place).write(place.folder / LESSON_FILE)
        return taught

    def _unlabelled(
        self, examples: Sequence[Example], tokenizer: BackboneTokenizer
    ) -> list[Example]:
        if self.unlabelled is None:
            return []
        return unlabelled_examples(
            self.task, self.unlabelled, examples, tokenizer=tokenizer,
            limit=self.config.max_unlabelled,
        )  # fmt: skip

    def _augmented(self, train: Sequence[Example], tokenizer: BackboneTokenizer) -> list[Example]:
        if self.config.augment is None:
            return []
        return augmented_examples(self.task, train, self.config.augment, tokenizer=tokenizer)

    def _measure(self, answers: Logits, examples: Sequence[Example]) -> Distilled:
        """The teachers together on validation and test records, from answers `(K, N, L)`."""
        heads = head_slices(self.task.heads)
        known = torch.from_numpy(answers[:, : len(examples)])
        logits = mean_answers(known, heads, self.config.ensemble).numpy()
        rows = {
            split: [row for row, example in enumerate(examples) if example.split == split]
            for split in ("valid", "test")
        }
        targets = {
            split: {
                head.name: label_matrix([examples[row] for row in some], head.name, head.config)
                for head in heads
            }
            for split, some in rows.items()
        }
        return Distilled(
            teachers=tuple(source.ref for source in self.sources),
            student=self._student_name(),
            teacher_valid_macro_f1=gate_metric(logits[rows["valid"]], targets["valid"], heads),
            student_valid_macro_f1=0.0,
            test_macro_f1={
                head.name: gate_metric(logits[rows["test"]], targets["test"], (head,))
                for head in heads
                if known_rows(targets["test"][head.name]).any()
            },
        )

    def _student_name(self) -> str | None:
        picked = self.config.student
        if picked is None:
            return None
        whose = "the teacher" if picked.of == "teacher" else self.task.train.backbone
        return f"layers {', '.join(map(str, picked.layers))} of {whose}"

    def _lesson(self, place: TrainingRun) -> Lesson:
        first = self.sources[0] if self.config.follows_layers else None
        return Lesson(
            digests=tuple(source.ref.digest for source in self.sources),
            followed_folder=None if first is None else str(first.checkpoint_folder),
            followed_task=None if first is None else first.task,
            initial=str(place.student) if self.config.student is not None else None,
        )

    def _check_vocabulary(self, tokenizer: Path) -> None:
        theirs = self.sources[0].checkpoint_folder / TOKENIZER_FILE
        if digest_of_file(theirs) != digest_of_file(tokenizer):
            raise ConfigError(
                f"teacher {self.sources[0].ref.address}: distil.hidden and distil.relations need "
                f"teacher and student to have one tokenizer, got two; leave them out, or take "
                f"distil.student of the teacher"
            )


def find_teaching(task: TaskConfig, home: Home, *, spool: Path) -> Teaching | None:
    """What the task asks of teachers; None where it asks nothing.

    Raises:
        ConfigError: a teacher's heads, labels or columns are not the task's.
        ArtifactError: a teacher is not there.
        DataContractError: `distil.unlabelled` names no files, or files without a text column.
    """
    if (config := task.distil) is None:
        return None
    sources = tuple(find_teacher(address, task.name, home) for address in config.teacher)
    for source in sources:
        head_columns(source, task)
        if source.task.clean != task.clean:
            log.warning(
                "teacher %s was trained on texts cleaned in another way; it reads this task's",
                source.ref.address,
            )
    unlabelled = None
    if config.unlabelled:
        unlabelled = survey_texts(task, config.unlabelled, home, spool=spool)
    return Teaching(task, config, sources, unlabelled)


def with_teaching(digest: str, teaching: Teaching | None) -> str:
    """A data digest that teachers are part of; without any it stays what it is."""
    return digest if teaching is None else digest_of([digest, teaching.digest])


def start_run(task: TaskConfig, place: TrainingRun, teaching: Teaching | None) -> None:
    """Leaves the tokenizer of what is trained in the run's folder.

    Raises:
        ConfigError, ArtifactError: see `Teaching.start` and `save_tokenizer`.
    """
    if teaching is None:
        save_tokenizer(task.train.backbone, place.tokenizer)
    else:
        teaching.start(place)


def student_outcome(
    taught: Distilled, student_macro_f1: float, registry: Registry, run_id: str
) -> Distilled:
    """How much of its teachers the student has, which is also logged to its MLflow run."""
    told = taught.model_copy(update={"student_valid_macro_f1": student_macro_f1})
    registry.tag(run_id, {"distilled_from": ", ".join(map(str, told.teachers))})
    figures = {f"teacher.{name}.macro_f1": f1 for name, f1 in told.test_macro_f1.items()}
    figures |= {"teacher.valid_macro_f1": told.teacher_valid_macro_f1, "teacher.kept": told.kept}
    registry.log_metrics(run_id, figures)
    log.info(
        "the student keeps %.1f %% of its teachers' macro-F1 on validation (%.4f of %.4f)",
        100 * told.kept, student_macro_f1, told.teacher_valid_macro_f1,
    )  # fmt: skip
    return told


def _make_student(
    task: TaskConfig, source: TeacherSource, picked: StudentConfig, folder: Path
) -> None:
    """Writes the encoder that training starts from, and the teacher's heads where they fit."""
    if picked.of == "backbone":
        encoder = load_encoder(task.train.backbone, dropout=task.train.dropout)
        pick_layers(encoder, picked.layers).save_pretrained(folder)
        return
    if source.task.train.adapter is not None:
        raise ConfigError(
            f"teacher {source.ref.address}: has adapters between its layers, so that a student "
            f"cannot be made of these; leave distil.student out, or take another teacher"
        )
    model = source.model()
    pick_layers(model.encoder, picked.layers).save_pretrained(folder)
    ways = [(each.pooling, each.window_pooling) for each in (source.task.train, task.train)]
    if ways[0] != ways[1] or source.task.prompt is not None:
        return  # heads that were made for another vector
    rows = head_columns(source, task)
    if task.train.window_pooling == "attention":
        rows = [*rows, -1]
    heads = {name: weight[rows].contiguous() for name, weight in model.heads.state_dict().items()}
    save_file(heads, folder / HEADS_FILE)


def _train(examples: Sequence[Example]) -> list[Example]:
    return [example for example in examples if example.split == "train"]
