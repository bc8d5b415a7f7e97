from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.flow import Prepared
from pipeline.model.labelled import (
    MISSING,
    OUTSIDE,
    Example,
    Labeller,
    known_rows,
    label_matrix,
    load_examples,
    outside_rows,
    save_examples,
    split_of,
    target_matrix,
)
from pipeline.rows import Record
from pipeline.window import Window
from schemas.errors import DataContractError
from schemas.head import OutsideConfig
from schemas.task import HeadConfig, TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUEUE = HeadConfig(column="queue", labels=("billing", "technical", "shipping"))
TOPICS = HeadConfig(kind="multi", column="topics", labels=("price", "quality", "service"))
MOOD = HeadConfig(kind="aspect", column="mood", labels=("good", "bad"), aspects=("food", "staff"))
HEADS = {"queue": QUEUE, "topics": TOPICS}


def prepared(record_id: str = "r1", **values: Any) -> Prepared:
    record = Record(record_id, "tickets.csv", 1, ("text",), values, b"secret words")
    return Prepared(record, ("text",), "0" * 32, "en", (), False)


def test_labels_become_indices_and_flags() -> None:
    labeller = Labeller(HEADS)
    targets = labeller.targets(prepared(queue=" technical ", topics=["service", "price"]))
    assert targets == {"queue": 1, "topics": (1, 0, 1)}
    labeller.check()


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (["price", "quality"], (1, 1, 0)),
        (np.array(["service"]), (0, 0, 1)),
        ('["quality", "service"]', (0, 1, 1)),
        ("price|service", (1, 0, 1)),
        (" price | price ", (1, 0, 0)),
        ([], (0, 0, 0)),
        ("[]", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_multi_labels_from_lists_json_and_separated_text(
    value: Any, flags: tuple[int, ...]
) -> None:
    labeller = Labeller({"topics": TOPICS})
    assert labeller.targets(prepared(topics=value)) == {"topics": flags}
    labeller.check()


def test_another_separator() -> None:
    head = TOPICS.model_copy(update={"separator": ";"})
    targets = Labeller({"topics": head}).targets(prepared(topics="price;quality"))
    assert targets == {"topics": (1, 1, 0)}


@pytest.mark.parametrize("values", [{}, {"queue": None, "topics": None}, {"queue": "  "}])
def test_missing_labels_are_none(values: dict[str, Any]) -> None:
    labeller = Labeller(HEADS)
    assert labeller.targets(prepared(**values)) == {"queue": None, "topics": None}
    labeller.check()


@pytest.mark.parametrize("value", [float("nan"), "nan", "-1", "3"])
def test_failure_43_what_is_no_label_never_becomes_a_number(value: Any) -> None:
    labeller = Labeller(HEADS)
    targets = labeller.targets(prepared(queue=value))
    assert targets["queue"] == MISSING
    with pytest.raises(DataContractError, match="unknown label"):
        labeller.check()


def test_failure_43_all_unknown_labels_are_named_in_one_error() -> None:
    labeller = Labeller(HEADS)
    for row in range(5):
        labeller.targets(prepared(f"t{row}", queue="biling"))
    labeller.targets(prepared("t9", queue="billing", topics="price|zzz"))
    with pytest.raises(DataContractError) as caught:
        labeller.check()
    message = str(caught.value)
    assert "head 'queue': unknown label 'biling' (did you mean 'billing'?) in 5 records" in message
    assert "(for example t0, t1, t2)" in message
    assert "head 'topics': unknown label 'zzz' in 1 records (for example t9)" in message
    assert message.endswith("add the labels to the task file or correct the data")
    assert "secret" not in message


def test_matrix_marks_missing_labels(make_example: Callable[..., Example]) -> None:
    examples = [make_example("a", queue=2, topics=None), make_example("b", queue=None)]
    single = label_matrix(examples, "queue", QUEUE)
    assert single.tolist() == [2, MISSING]
    assert single.dtype == np.int64
    two = TOPICS.model_copy(update={"labels": ("price", "quality")})
    multi = label_matrix(examples, "topics", two)
    assert multi.dtype == np.float32
    assert np.isnan(multi[0]).all()
    assert multi[1].tolist() == [0.0, 0.0]


def test_matrix_of_nothing_keeps_its_shape() -> None:
    assert label_matrix([], "queue", QUEUE).shape == (0,)
    assert label_matrix([], "topics", TOPICS).shape == (0, 3)


DECORATED = st.tuples(
    st.lists(st.text("abcXYZ019éß你", min_size=1, max_size=6), min_size=1, max_size=5),
    st.lists(st.sampled_from(["", " ", "  ", "!", ", ", "_", "...", "\n"]), min_size=6, max_size=6),
)


@given(DECORATED, st.integers(0, 3))
def test_case_space_and_punctuation_never_straddle_splits(
    decorated: tuple[list[str], list[str]], seed: int
) -> None:
    words, marks = decorated
    config = TrainConfig(seed=seed)
    plain = split_of(["".join(words).lower()], config, has_test=False)
    dressed = "".join(mark + word for mark, word in zip(marks, words, strict=False)) + marks[-1]
    assert split_of([dressed], config, has_test=False) == plain
    if dressed.upper().lower() == dressed.lower():  # not so for ß
        assert split_of([dressed.upper()], config, has_test=False) == plain


def test_fractions_are_about_right_and_stable() -> None:
    config = TrainConfig(valid_fraction=0.2, test_fraction=0.1)
    texts = [[f"subject {row}", f"body {row * 7}"] for row in range(5000)]
    first = [split_of(text, config, has_test=False) for text in texts]
    counted = Counter(first)
    assert counted["test"] == pytest.approx(500, abs=100)
    assert counted["valid"] == pytest.approx(1000, abs=130)
    assert first == [split_of(text, config, has_test=False) for text in texts]


def test_what_was_drawn_once_stays() -> None:
    rows = (0, 3, 52)
    drawn = [split_of([f"text {row}"], TrainConfig(), has_test=False) for row in rows]
    assert drawn == ["train", "valid", "test"]


def test_with_a_test_set_nothing_is_held_back_for_test() -> None:
    config = TrainConfig(valid_fraction=0.2, test_fraction=0.4)
    counted = Counter(split_of([f"text {row}"], config, has_test=True) for row in range(2000))
    assert set(counted) == {"train", "valid"}
    assert counted["valid"] == pytest.approx(400, abs=80)


def test_another_seed_draws_other_splits() -> None:
    texts = [[f"text {row}"] for row in range(200)]
    one, two = (
        [split_of(text, TrainConfig(seed=seed), has_test=False) for text in texts]
        for seed in (1, 2)
    )
    assert one != two


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    example = Example(
        record_id="r1",
        text_hash="a" * 32,
        split="valid",
        lang="de",
        texts=("Größe", "你好 👩‍👧"),
        windows=(Window((2, 9, 3), (0, 0, 1), 0, 0), Window((2, 40000, 3), (0, 1, 1), 0, 0)),
        targets={"queue": 2, "topics": (1, 0, 1), "mood": None},
        day=dt.date(2026, 2, 28),
    )
    bare = Example("r2", "b" * 32, "train", "", ("x",), (), {"queue": None})
    path = tmp_path / "examples.parquet"
    save_examples([example, bare], path)
    assert load_examples(path) == [example, bare]
    pq.write_table(pq.read_table(path).drop_columns(["day"]), path)  # as older runs left it
    assert load_examples(path) == [replace(example, day=None), bare]


def test_messages_do_not_hold_text() -> None:
    labeller = Labeller(HEADS)
    labeller.targets(prepared(queue="x"))
    with pytest.raises(DataContractError, match=re.escape("unknown label 'x' in 1 records")):
        labeller.check()


def test_aspects_become_choices() -> None:
    labeller = Labeller({"mood": MOOD})
    values = [{"food": "bad"}, "staff:good|food:good", "{}", None, ""]
    found = [labeller.targets(prepared(mood=value))["mood"] for value in values]
    assert found == [(2, 0), (1, 1), (0, 0), None, None]
    assert labeller.targets(prepared()) == {"mood": None}
    labeller.check()


def test_all_that_is_wrong_with_aspects_is_named_in_one_error() -> None:
    labeller = Labeller({"mood": MOOD})
    for row in range(4):
        labeller.targets(prepared(f"t{row}", mood={"fod": "good"}))
    labeller.targets(prepared("t8", mood={"food": "god", "staff": "bad"}))
    labeller.targets(prepared("t9", mood="food:good|food:bad|staff"))
    with pytest.raises(DataContractError) as caught:
        labeller.check()
    message = str(caught.value)
    assert "head 'mood': unknown aspect 'fod' (did you mean 'food'?) in 4 records" in message
    assert "(for example t0, t1, t2)" in message
    assert "unknown label 'god' (did you mean 'good'?) in 1 records (for example t8)" in message
    assert "two labels for aspect 'food' in 1 records (for example t9)" in message
    assert "no label for aspect 'staff' in 1 records (for example t9)" in message


def test_the_matrix_of_aspects_has_a_choice_for_each() -> None:
    matrix = target_matrix([(2, 0), None, (1, 1)], MOOD)
    assert matrix.dtype == np.float32
    assert matrix[[0, 2]].tolist() == [[2.0, 0.0], [1.0, 1.0]]
    assert np.isnan(matrix[1]).all()
    assert known_rows(matrix).tolist() == [True, False, True]
    assert known_rows(target_matrix([1, None, 0], QUEUE)).tolist() == [True, False, True]
    assert target_matrix([], MOOD).shape == (0, 2)


def test_aspect_targets_are_saved_and_loaded(tmp_path: Path) -> None:
    example = Example("r1", "a" * 32, "train", "en", ("x",), (), {"mood": (2, 0)})
    save_examples([example], tmp_path / "examples.parquet")
    assert load_examples(tmp_path / "examples.parquet") == [example]


ASKED = QUEUE.model_copy(update={"outside": OutsideConfig(labels=("oos", "spam"))})


def test_values_outside_are_known_to_be_none_of_the_labels(tmp_path: Path) -> None:
    labeller = Labeller({"queue": ASKED})
    found = [
        labeller.targets(prepared(queue=value)) for value in ("oos", " spam ", "billing", None)
    ]
    assert [target["queue"] for target in found] == [OUTSIDE, OUTSIDE, 0, None]
    labeller.check()
    examples = [
        Example(f"r{row}", "0" * 32, "train", "en", ("x",), (), targets)
        for row, targets in enumerate(found)
    ]
    assert outside_rows(examples, "queue").tolist() == [True, True, False, False]
    matrix = label_matrix(examples, "queue", ASKED)
    assert matrix.tolist() == [MISSING, MISSING, 0, MISSING]
    assert known_rows(matrix).tolist() == [False, False, True, False]
    save_examples(examples, tmp_path / "examples.parquet")
    loaded = load_examples(tmp_path / "examples.parquet")
    assert [example.targets["queue"] for example in loaded] == [OUTSIDE, OUTSIDE, 0, None]


def test_a_value_outside_is_unknown_to_heads_that_do_not_name_it() -> None:
    labeller = Labeller({"queue": ASKED})
    labeller.targets(prepared(queue="ooos"))
    with pytest.raises(DataContractError, match=r"unknown label 'ooos' \(did you mean 'oos'"):
        labeller.check()
    labeller = Labeller({"queue": QUEUE})
    labeller.targets(prepared(queue="oos"))
    with pytest.raises(DataContractError, match="unknown label 'oos'"):
        labeller.check()
    assert outside_rows([], "queue").tolist() == []
