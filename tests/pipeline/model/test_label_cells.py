"""Cells of label columns in all the forms that files have."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.label_cells import Problem, aspect_pairs, choices, label_list
from schemas.task import HeadConfig

TOPICS = HeadConfig(kind="multi", column="topics", labels=("price", "quality"))
MOOD = HeadConfig(
    kind="aspect", column="mood", labels=("good", "bad"), aspects=("food", "staff", "price: total")
)
BOTH = [("food", "good"), ("staff", "bad")]


def arrow(value: Any, kind: pa.DataType) -> Any:
    """A value as it comes out of a Parquet column of that type."""
    return pa.array([value], kind).to_pylist()[0]


PAIR = pa.struct([("food", pa.string()), ("staff", pa.string()), ("price: total", pa.string())])


@pytest.mark.parametrize(
    "value",
    [
        {"food": "good", "staff": "bad"},
        {"food": " good", "staff ": "bad"},
        '{"food": "good", "staff": "bad"}',
        ' {"food": "good",\n "staff": "bad"} ',
        arrow({"food": "good", "staff": "bad"}, PAIR),
        arrow([("food", "good"), ("staff", "bad")], pa.map_(pa.string(), pa.string())),
        arrow([["food", "good"], ["staff", "bad"]], pa.list_(pa.list_(pa.string()))),
        [("food", "good"), ("staff", "bad")],
        np.array([["food", "good"], ["staff", "bad"]]),
        [{"food": "good"}, {"staff": "bad"}],
        [{"category": "food", "polarity": "good"}, {"category": "staff", "polarity": "bad"}],
        '[{"a": "food", "b": "good"}, {"a": "staff", "b": "bad"}]',
        ["food:good", " staff : bad "],
        np.array(["food:good", "staff:bad"], dtype=object),
        '[["food", "good"], ["staff", "bad"]]',
        '["food:good", "staff:bad"]',
        "food:good|staff:bad",
        " food : good | staff:bad | ",
    ],
)
def test_pairs_from_every_form(value: Any) -> None:
    assert aspect_pairs(value, MOOD) == BOTH
    assert choices(BOTH, MOOD) == ((1, 2, 0), ())


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_an_empty_cell_says_that_nothing_is_known(value: Any) -> None:
    assert aspect_pairs(value, MOOD) is None


@pytest.mark.parametrize(
    "value", [{}, "{}", [], "[]", np.array([]), arrow({"food": None, "staff": None}, PAIR)]
)
def test_an_empty_object_says_that_no_aspect_is_spoken_of(value: Any) -> None:
    assert aspect_pairs(value, MOOD) == []
    assert choices([], MOOD) == ((0, 0, 0), ())


def test_other_separators_and_names_that_hold_one() -> None:
    head = MOOD.model_copy(update={"separator": ";", "pair_separator": "#"})
    assert aspect_pairs("food#good;staff#bad", head) == BOTH
    assert aspect_pairs("price: total:bad", MOOD) == [("price: total", "bad")]
    assert choices([("price: total", "bad")], MOOD) == ((0, 0, 2), ())


def test_what_is_wrong_is_told_and_the_rest_is_kept() -> None:
    pairs = [("fod", "good"), ("food", "godo"), ("staff", "bad"), ("staff", "good"),
             ("staff", "bad"), ("price: total", None), ("food", "none"), ("fod", "bad"),
             ("staff", "good")]  # fmt: skip
    found, problems = choices(pairs, MOOD)
    assert found == (0, 2, 0)
    assert [str(problem) for problem in problems] == [
        "unknown aspect 'fod' (did you mean 'food'?)",
        "unknown label 'godo' (did you mean 'good'?)",
        "two labels for aspect 'staff'",
        "no label for aspect 'price: total'",
    ]
    assert Problem("no label for aspect", "x") == Problem("no label for aspect", "x")


@pytest.mark.parametrize(
    ("value", "pairs"),
    [("food", [("food", None)]), (7, [("7", None)]), ("{broken:good", [("{broken", "good")]),
     ([("food", "good", "bad")], [("('food', 'good', 'bad')", None)])],
)  # fmt: skip
def test_half_a_pair_has_no_label(value: Any, pairs: list[tuple[str, str | None]]) -> None:
    assert aspect_pairs(value, MOOD) == pairs


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=3, max_size=3))
def test_the_choices_come_back_from_every_way_to_write_them(wanted: list[int]) -> None:
    named = {
        aspect: MOOD.labels[choice - 1]
        for aspect, choice in zip(MOOD.aspects, wanted, strict=True)
        if choice
    }
    answer = [f"{aspect}:{label}" for aspect, label in named.items()]  # as the scores have it
    forms = [named, json.dumps(named), list(named.items()), answer, json.dumps(answer)]
    for value in [*forms, *(["|".join(answer)] if answer else [])]:
        pairs = aspect_pairs(value, MOOD)
        assert pairs is not None
        assert choices(pairs, MOOD) == (tuple(wanted), ())


@pytest.mark.parametrize(
    ("value", "labels"),
    [("a| b|", ["a", "b"]), (["a", 3], ["a", "3"]), ('["a"]', ["a"]), ("[a", ["[a"]), ("", []),
     ('{"a": 1}', ['{"a": 1}'])],
)  # fmt: skip
def test_lists_of_labels(value: Any, labels: list[str]) -> None:
    assert label_list(value, TOPICS) == labels
