"""What a task file may say of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import ConfigError
from schemas.load import parse_task
from schemas.searched import Searched, Trial

if TYPE_CHECKING:
    from pathlib import Path

RAW = {
    "name": "t",
    "data": {"incoming": "in/*.csv", "text_columns": ["text"]},
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


def search(said: Any) -> Any:
    return parse_task(RAW | {"train": {"search": said}}, source="t").train.search


def test_nothing_is_searched_unless_asked_for() -> None:
    assert parse_task(RAW, source="t").train.search is None
    assert search({"trials": 5}).trials == 5


def test_numbers_without_a_point_are_read_as_yaml_gives_them() -> None:
    assert search({"learning_rate": {"between": ["1e-5", "1e-4"]}}).learning_rate.between == (
        1e-5, 1e-4
    )  # fmt: skip


def test_a_setting_is_left_out_or_said_in_other_values() -> None:
    found = search({"dropout": None, "batch_size": {"among": [16, 32]}})
    assert found.dropout is None
    assert found.batch_size.among == (16, 32)
    assert found.batch_size.times is None  # the default's way went with it
    assert found.learning_rate.times == pytest.approx((1 / 3, 3))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"trials": 1}, r"train.search.trials: .*greater than or equal to 2"),
        ({"dropout": {}}, "train.search.dropout: say exactly one of among, between and times"),
        ({"dropout": {"among": [0.1], "times": [1, 2]}}, "say exactly one of"),
        ({"learning_rate": {"between": [1e-3, 1e-5]}}, "the lower bound 0.001 comes first, then"),
        ({"layer_decay": {"between": [0.5, 1.5]}}, "train.search.layer_decay.between.1: "),
        ({"batch_size": {"among": [0]}}, "train.search.batch_size.among.0: .*equal to 1"),
        ({"learning_rate": {"among": []}}, "at least 1 item"),
        ({"trails": 4}, r"unknown key 'train.search.trails' \(did you mean 'trials'\?\)"),
        ({"dropout": {"betwen": [0, 0.1]}}, r"dropout.betwen' \(did you mean 'between'\?\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_by_its_path(said: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(said)


def test_a_search_is_read_as_it_was_written(tmp_path: Path) -> None:
    trials = (Trial(number=0, settings={"batch_size": 16, "dropout": 0.1}, outcome="finished",
                    macro_f1=(0.5,)),)  # fmt: skip
    searched = Searched(fingerprint="f", trials=trials, winner=0, why="alone", epochs=1)
    searched.write(tmp_path / "search.json")
    assert Searched.read(tmp_path / "search.json") == searched
