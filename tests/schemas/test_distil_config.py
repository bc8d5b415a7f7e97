from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.distilled import Distilled, TeacherRef
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import load_task, parse_task

if TYPE_CHECKING:
    from schemas.task import TaskConfig

RAW: dict[str, Any] = {
    "name": "tiny",
    "data": {"incoming": "in/*.csv", "text_columns": ["body"]},
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


def parse(**distil: Any) -> TaskConfig:
    return parse_task(RAW | {"distil": distil}, source="tiny")


def test_one_teacher_may_stand_without_a_list_and_nothing_else_is_needed() -> None:
    distil = parse(teacher="models:/tickets@champion").distil
    assert distil is not None
    assert distil.teacher == ("models:/tickets@champion",)
    assert (distil.alpha, distil.temperature, distil.follows_layers) == (0.5, 2.0, False)
    assert parse_task(RAW, source="tiny").distil is None


@pytest.mark.parametrize(
    "address", ["run:trial-1", "run:tickets/trial-1", "models:/tickets/3", "path:bundles/small"]
)
def test_addresses_of_teachers(address: str) -> None:
    distil = parse(teacher=[address]).distil
    assert distil is not None
    assert distil.teacher == (address,)


@pytest.mark.parametrize(
    ("distil", "message"),
    [
        ({"teacher": "tickets@champion"}, r"distil.teacher.0"),
        ({"teacher": []}, r"distil.teacher"),
        ({"teacher": "run:a", "student": {"layers": [2, 0]}}, r"must ascend, each named once"),
        ({"teacher": "run:a", "alpha": 0, "unlabelled": "in"}, r"alpha is 0, so that nothing"),
        ({"teacher": "run:a", "temperature": 0}, r"distil.temperature"),
        ({"teacher": "run:a", "hidden": {"wait": 1}}, r"unknown key 'distil.hidden.wait'"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(distil: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(**distil)


def test_all_of_it_can_stand_behind_the_command(tmp_path: Any) -> None:
    overrides = ["distil.teacher=models:/tickets@champion", "distil.student.layers=[0, 2, 4]"]
    distil = load_task("tickets", Home(tmp_path), overrides=overrides).distil
    assert distil is not None
    assert distil.student is not None
    assert (distil.student.layers, distil.student.of) == ((0, 2, 4), "teacher")


def test_kept_is_the_students_share() -> None:
    teacher = TeacherRef(address="models:/t/3", digest="abcdef0123456789")
    told = Distilled(teachers=(teacher,), teacher_valid_macro_f1=0.8, student_valid_macro_f1=0.792)
    assert told.kept == pytest.approx(0.99)
    assert str(teacher) == "models:/t/3 (abcdef012345)"
    assert told.model_copy(update={"teacher_valid_macro_f1": 0.0}).kept == 0.0
