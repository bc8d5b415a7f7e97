"""Task files: precedence, and messages that name the culprit by its dotted path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from pydantic import ValidationError

from schemas.errors import ConfigError
from schemas.load import SHIPPED_TASKS, find_task, load_task, parse_task, task_names
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home

SHIPPED = sorted(path.stem for path in SHIPPED_TASKS.glob("*.yaml"))
MINIMAL = """\
name: mine
data: {incoming: in.csv, text_columns: [text]}
heads:
  topic: {column: topic, labels: [a, b]}
train: {epochs: 5}
"""


@pytest.fixture
def mine(home: Home) -> Path:
    home.tasks.mkdir()
    path = home.tasks / "mine.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_task_loads(name: str, home: Home) -> None:
    task = load_task(name, home)
    assert task.name == name
    assert all(len(labels) >= 2 for labels in task.label_sets.values())


def test_shipped_tasks_are_the_two_of_the_design() -> None:
    assert {"tickets", "reviews"} <= set(SHIPPED)


def test_yaml_wins_over_defaults_and_overrides_over_yaml(mine: Path, home: Home) -> None:
    task = load_task(
        "mine", home, overrides=["train.seed=3", "window.max_tokens=64", "window.stride_tokens=8"]
    )
    assert (task.train.batch_size, task.train.epochs, task.train.seed) == (None, 5, 3)
    assert (task.window.max_tokens, task.window.stride_tokens) == (64, 8)
    assert load_task("mine", home, overrides=["train.epochs=9"]).train.epochs == 9


def test_the_last_of_two_overrides_wins(mine: Path, home: Home) -> None:
    task = load_task("mine", home, overrides=["train.epochs=2", "train.epochs=7"])
    assert task.train.epochs == 7


def test_override_values_are_yaml(mine: Path, home: Home) -> None:
    overrides = ["compress.prefer=[int8_dynamic, fp32]", "schedule=null", "score.model=models:/m/3"]
    task = load_task("mine", home, overrides=overrides)
    assert task.compress.prefer == ("int8_dynamic", "fp32")
    assert task.schedule is None
    assert task.model_uri == "models:/m/3"


def test_a_path_is_a_task_name_too(mine: Path, home: Home) -> None:
    assert load_task(str(mine), home) == load_task("mine", home)


def test_the_users_own_task_wins_over_a_shipped_one(home: Home) -> None:
    home.tasks.mkdir()
    (home.tasks / "tickets.yaml").write_text(MINIMAL)
    assert find_task("tickets", home) == home.tasks / "tickets.yaml"


def test_task_names_are_the_users_and_the_shipped_ones(mine: Path, home: Home) -> None:
    assert task_names(home) == tuple(sorted([*SHIPPED, mine.stem]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trian.epochs=2", r"unknown key 'trian' \(did you mean 'train'\?\)"),
        ("train.epoch=2", r"unknown key 'train\.epoch' \(did you mean 'epochs'\?\)"),
        ("heads.topic.colum=x", r"unknown key 'heads\.topic\.colum' \(did you mean 'column'\?\)"),
        (
            "contract.columns.kind.alowed=[x]",
            r"unknown key 'contract\.columns\.kind\.alowed' \(did you mean 'allowed'\?\)",
        ),
        ("train.zzzzzz=2", r"unknown key 'train\.zzzzzz'$"),
        ("train.epochs=0", r"train\.epochs: input should be greater than or equal to 1, got 0"),
        ("train.epochs=many", r"train\.epochs: .*valid integer.*, got 'many'"),
        ("heads.Topic.column=x", r"heads\.Topic.*"),
        ("window.stride_tokens=200", r"window: stride_tokens 200 must be at most half"),
        ("heads.topic.labels=[a]", r"heads\.topic\.labels: got 1 labels, need at least 2"),
        ("heads.topic.labels=[a, b, a]", r"heads\.topic\.labels: repeated label 'a'"),
        ("data.id_column=text", r"data: a column is named twice in \['text', 'text'\]"),
        ("name=Mine", r"name: string should match pattern"),
        ("score.cuda_graphs=true", r"score: cuda_graphs is for device: gpu; set that too"),
    ],
)
def test_a_bad_key_or_value_is_named(mine: Path, home: Home, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_task("mine", home, overrides=[override])
    assert str(caught.value).startswith(f"{mine}: ")


def test_a_missing_key_is_named_with_its_path() -> None:
    raw = yaml.safe_load(MINIMAL)
    del raw["heads"]["topic"]["column"]
    with pytest.raises(ConfigError, match=r"^here: missing key 'heads\.topic\.column'$"):
        parse_task(raw, source="here")


def test_all_problems_are_told_at_once() -> None:
    raw = yaml.safe_load(MINIMAL) | {"sceduled": None, "train": {"epochs": -1}}
    with pytest.raises(ConfigError) as caught:
        parse_task(raw, source="here")
    assert "train.epochs" in str(caught.value)
    assert "unknown key 'sceduled' (did you mean 'schedule'?)" in str(caught.value)


def test_a_long_value_is_shortened_in_the_message() -> None:
    raw = yaml.safe_load(MINIMAL) | {"train": {"epochs": "x" * 500}}
    with pytest.raises(ConfigError) as caught:
        parse_task(raw, source="here")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: [unclosed", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"- a\n- b\n", "expected a mapping at the top, got list"),
        (b"", "expected a mapping at the top, got NoneType"),
    ],
)
def test_a_file_that_is_no_task(mine: Path, home: Home, content: bytes, message: str) -> None:
    mine.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_task("mine", home)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epochs", "expected key.sub=value"),
        ("=3", "expected key.sub=value"),
        ("name.sub=3", "'name' is a value, not a section"),
        ("train.epochs=[1", "value is not valid YAML"),
    ],
)
def test_a_malformed_override(mine: Path, home: Home, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_task("mine", home, overrides=[override])


def test_an_override_can_fill_a_section_left_empty(mine: Path, home: Home) -> None:
    mine.write_text(MINIMAL.replace("train: {epochs: 5}", "train:"))
    assert load_task("mine", home, overrides=["train.epochs=2"]).train.epochs == 2


def test_an_unknown_task_is_answered_with_the_known_ones(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"'ticket' \(did you mean 'tickets'\?\); known: .*revi"):
        load_task("ticket", home)
    with pytest.raises(ConfigError, match=r"task file no\.yaml does not exist"):
        load_task("no.yaml", home)


def test_a_task_is_frozen(mine: Path, home: Home) -> None:
    task = load_task("mine", home)
    with pytest.raises(ValidationError, match="frozen"):
        task.name = "other"  # type: ignore[misc]


def test_the_digest_is_that_of_all_settings(mine: Path, home: Home) -> None:
    task = load_task("mine", home)
    assert task.digest == TaskConfig.model_validate(task.model_dump()).digest
    assert task.digest != load_task("mine", home, overrides=["train.seed=1"]).digest


def test_the_default_model_is_the_champion(mine: Path, home: Home) -> None:
    assert load_task("mine", home).model_uri == "models:/mine@champion"
