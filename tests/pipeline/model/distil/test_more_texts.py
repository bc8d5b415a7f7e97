"""Unlabelled texts and changed copies: which are taken, and that nothing held out is among them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.labelled_rows import load_labelled, survey_labelled
from pipeline.model.distil.more_texts import augmented_examples, unlabelled_examples
from pipeline.model.pretrain.corpus import survey_texts
from schemas.distil import AugmentConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.model.labelled import Example
    from schemas.home import Home
    from schemas.task import TaskConfig


def write(path: Path, bodies: Sequence[str], **columns: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"ticket_id": f"t{number}", "subject": "", "body": body, **columns}
        for number, body in enumerate(bodies)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def tokenizer(tiny_tokenizer_path: Path) -> BackboneTokenizer:
    return BackboneTokenizer(tiny_tokenizer_path)


@pytest.fixture
def labelled(
    home: Home, tiny_task: TaskConfig, tokenizer: BackboneTokenizer, tmp_path: Path
) -> list[Example]:
    bodies = [f"parcel number {number} was late" for number in range(60)]
    write(home.root / "labelled/tiny/a.jsonl", bodies, queue="billing")
    task = exact(tiny_task)
    found, test = survey_labelled(task, home, spool=tmp_path)
    return load_labelled(task, found, test, tokenizer=tokenizer).examples


def exact(task: TaskConfig) -> TaskConfig:
    """Only equal texts are near ones: these all are alike."""
    train = task.train.model_copy(update={"near_duplicate_similarity": None})
    return task.model_copy(update={"train": train})


def test_distinct_unlabelled_texts_that_are_none_of_the_labelled_ones(
    home: Home, tiny_task: TaskConfig, tokenizer: BackboneTokenizer, labelled: list[Example],
    tmp_path: Path,
) -> None:  # fmt: skip
    fresh = [f"the card of {number} was charged" for number in range(40)]
    known = [example.texts[-1] for example in labelled]
    held_out = [e.texts[-1].upper() for e in labelled if e.split != "train"]
    assert held_out
    for date in ("2026-11-01", "2026-11-02"):  # the same ids and texts on both days
        write(home.root / f"incoming/tiny/date={date}/a.jsonl", [*fresh, *known, *held_out])
    task = exact(tiny_task)
    found = survey_texts(task, task.data.incoming, home, spool=tmp_path)

    def taken(limit: int) -> list[Example]:
        return unlabelled_examples(task, found, labelled, tokenizer=tokenizer, limit=limit)

    every = taken(1000)
    texts = [example.texts[-1] for example in every]
    assert len(set(texts)) == len(texts)
    # Some fall where valid and test are: their labelled twins may come later.
    assert set(texts) < set(fresh)
    assert 25 <= len(texts) < 40
    assert {(e.split, e.targets["queue"], e.targets["topics"]) for e in every} == {
        ("train", None, None)
    }
    assert [e.record_id for e in taken(7)] == sorted(e.record_id for e in every)[:7]


def test_near_twins_of_what_is_held_out_are_left_out(
    home: Home, tiny_task: TaskConfig, tokenizer: BackboneTokenizer, labelled: list[Example],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Though by their own hash some of them fall where the training records are."""
    twins = [f"{example.texts[-1]}r" for example in labelled if example.split != "train"]
    write(home.root / "incoming/tiny/date=2026-11-01/a.jsonl", [*twins, "my card was charged"])
    found = survey_texts(tiny_task, tiny_task.data.incoming, home, spool=tmp_path)
    taken = unlabelled_examples(tiny_task, found, labelled, tokenizer=tokenizer, limit=1000)
    assert [example.texts[-1] for example in taken] == ["my card was charged"]


def test_copies_are_new_texts_with_windows_of_their_own_and_no_label(
    tiny_task: TaskConfig, tokenizer: BackboneTokenizer, labelled: list[Example]
) -> None:
    train = [example for example in labelled if example.split == "train"]
    config = AugmentConfig(copies=2, word_drop=0.3)
    made = augmented_examples(tiny_task, train, config, tokenizer=tokenizer)
    assert made == augmented_examples(tiny_task, train, config, tokenizer=tokenizer)
    assert len(train) < len(made) <= 2 * len(train)
    originals = {example.record_id: example for example in train}
    for copy in made:
        original = originals[copy.record_id.partition("#")[0]]
        assert copy.text_hash != original.text_hash
        assert copy.windows[0].n_tokens <= original.windows[0].n_tokens
        assert copy.targets == {"queue": None, "topics": None}
    assert len({copy.text_hash for copy in made} | {e.text_hash for e in train}) == len(made) + len(
        train
    )
