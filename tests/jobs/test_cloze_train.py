"""A task with a cloze head, fine-tuned by the job that people run."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from transformers import BertConfig, BertForMaskedLM

from pipeline.heads import head_slices
from pipeline.model.checkpoint import load_checkpoint, new_classifier
from pipeline.model.labelled import load_examples
from schemas.load import load_task
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from schemas.home import Home
    from schemas.task import TaskConfig

    Run = Callable[..., Result]

SAID = {"bad": "broken", "good": "thanks"}
FILLER = ["the", "a", "my", "i", "it", "is", "app", "not", "please", "card", "today", "order"]


@pytest.fixture
def cloze_home(home: Home, tiny_task: TaskConfig, tiny_backbone: Path) -> Home:
    """A home whose task `tiny` has a cloze head, a linear one, and a backbone for both."""
    torch.manual_seed(7)
    config = BertConfig.from_pretrained(tiny_backbone, initializer_range=0.1)
    BertForMaskedLM(config).save_pretrained(home.root / "backbone")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tiny_backbone / name, home.root / "backbone" / name)
    words = {label: [label] for label in SAID}
    raw = tiny_task.model_dump(mode="json")
    raw["heads"] = {
        "topics": raw["heads"]["topics"],
        "mood": {"column": "mood", "labels": list(SAID), "review_below": 0.0,
                 "cloze": {"prompt": "it was [MASK].", "words": words}},
    }  # fmt: skip
    raw["train"] |= {
        "backbone": f"path:{home.root / 'backbone'}", "learning_rate": 5e-3, "epochs": 2,
        "threads_per_worker": 1,
    }  # fmt: skip
    home.tasks.mkdir()
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    path = home.root / "labelled/tiny/rows.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(80, seed=3)), encoding="utf-8")
    return home


def rows(count: int, *, seed: int) -> list[dict[str, Any]]:
    chooser = random.Random(seed)
    made = []
    for number in range(count):
        mood = list(SAID)[number % 2]
        words = [*chooser.choices(FILLER, k=5), SAID[mood]]
        chooser.shuffle(words)
        body = " ".join([*words, str(number)])
        made.append(
            {"ticket_id": f"t{seed}-{number}", "subject": "", "body": body, "mood": mood,
             "topics": chooser.choice([["price"], []])}
        )  # fmt: skip
    return made


def test_a_word_that_will_not_do_ends_the_job_before_a_text_is_read(
    cloze_home: Home, nightmill: Run
) -> None:
    words = "heads.mood.cloze.words={bad: [awful], good: [good]}"
    done = nightmill("finetune", "tiny", words, home=cloze_home)
    assert done.exit_code == 2
    assert "heads.mood.cloze.words: 'awful' is cut into" in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_cloze_head_is_trained_by_the_job(
    cloze_home: Home, nightmill: Run, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    done = nightmill("finetune", "tiny", "--result", str(result), home=cloze_home)
    assert done.exit_code == 0, done.stderr
    place = TrainingRun(cloze_home, "tiny", json.loads(result.read_text())["run"])
    task = load_task("tiny", cloze_home)
    model = load_checkpoint(place.checkpoint, task.train, head_slices(task.heads))
    untrained = new_classifier(task.train, head_slices(task.heads))
    assert model.cloze is not None
    assert untrained.cloze is not None
    assert not torch.equal(model.cloze.words.weight, untrained.cloze.words.weight)
    examples = load_examples(place.examples)
    assert {window.input_ids.count(model.cloze.mask_id) for example in examples
            for window in example.windows} == {1}  # fmt: skip
