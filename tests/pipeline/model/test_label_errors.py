from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pipeline.heads import HeadSlice
from pipeline.model import label_errors
from pipeline.model.label_errors import find_label_errors, load_suspects, save_suspects
from pipeline.model.labelled import OUTSIDE
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.labelled import Example

QUEUE = HeadSlice("queue", HeadConfig(column="queue", labels=("pay", "crash", "ship", "rare")), 0)
TOPICS = HeadSlice(
    "topics", HeadConfig(kind="multi", column="topics", labels=("price", "quality")), 4
)
WORDS = ("invoice refund card", "crash error login", "parcel late broken")
WRONG = {number: (number + 1) % 3 for number in range(5, 150, 10)}  # the label it was given


@pytest.fixture
def examples(make_example: Callable[..., Example]) -> list[Example]:
    chooser = random.Random(4)
    made = []
    for number in range(150):
        words = [*WORDS[number % 3].split(), *chooser.choices(["the", "my", "please", "is"], k=3)]
        chooser.shuffle(words)
        made.append(
            replace(
                make_example(f"r{number}", queue=WRONG.get(number, number % 3)),
                texts=(" ".join(words),),
            )
        )
    return made


def test_wrong_labels_are_found_and_no_others(examples: list[Example], tmp_path: Path) -> None:
    found = find_label_errors(examples, (QUEUE, TOPICS), seed=1)
    names = QUEUE.config.labels
    wanted = {f"r{n}": (names[given], names[n % 3]) for n, given in WRONG.items()}
    told = {suspect.record_id: (suspect.given, suspect.likely) for suspect in found.suspects}
    assert len(told) >= 10
    assert told.items() <= wanted.items()
    assert found.judged == {"queue": 150}
    assert found.counts == {"queue": len(told)}
    assert found.agreement == {"queue": 0.9}
    confidences = [suspect.confidence for suspect in found.suspects]
    assert confidences == sorted(confidences, reverse=True)
    assert confidences[-1] > 0.4
    assert find_label_errors(examples, (QUEUE, TOPICS), seed=1) == found
    save_suspects(found.suspects, tmp_path / "label_errors.parquet")
    assert load_suspects(tmp_path / "label_errors.parquet") == found.suspects


def test_sound_labels_are_not_doubted(examples: list[Example], tmp_path: Path) -> None:
    sound = [
        replace(one, targets={**one.targets, "queue": number % 3})
        for number, one in enumerate(examples)
    ]
    found = find_label_errors(sound, (QUEUE,), seed=1)
    assert (found.suspects, found.counts, found.agreement) == ((), {"queue": 0}, {"queue": 1.0})
    save_suspects(found.suspects, tmp_path / "none.parquet")
    assert load_suspects(tmp_path / "none.parquet") == ()


def test_what_is_too_rare_or_unknown_is_not_judged(examples: list[Example]) -> None:
    changed = [
        replace(one, targets={**one.targets, "queue": target})
        for one, target in zip(examples[:10], [3] * 4 + [None] * 6, strict=True)
    ]
    assert find_label_errors([*changed, *examples[10:]], (QUEUE,), seed=1).judged == {"queue": 140}
    assert find_label_errors(examples[:40], (QUEUE,), seed=1).judged == {}
    assert find_label_errors([], (QUEUE,), seed=1).judged == {}


def test_of_a_large_set_a_sample_is_judged(
    examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_errors, "_MAX_SCORES", 4 * 80)
    assert find_label_errors(examples, (QUEUE,), seed=1).judged == {"queue": 80}


def test_texts_outside_have_no_label_to_doubt(examples: list[Example]) -> None:
    outside = [
        replace(one, record_id=f"o{n}", targets={**one.targets, "queue": OUTSIDE})
        for n, one in enumerate(examples[:20])
    ]
    found = find_label_errors([*examples, *outside], (QUEUE,), seed=1)
    assert found == find_label_errors(examples, (QUEUE,), seed=1)
