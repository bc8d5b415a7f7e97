"""The commands of `nightmill models`: how they are called, and the folder that pull leaves."""

from __future__ import annotations

import datetime as dt
import importlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from jobs.__main__ import app
from jobs.model_address import ModelAddress, parse_address, parse_name
from jobs.models import COMMANDS
from jobs.models_history import parse_moment
from jobs.models_pull import put_bundle
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_examples_that_exist(name: str) -> None:
    module, function, told = COMMANDS[name]
    command = getattr(importlib.import_module(module), function)
    assert isinstance(command, click.Command)
    assert command.name == f"models {name}"
    assert command.help
    assert told.endswith(".")
    assert command.epilog is not None
    assert command.epilog.startswith("\b\nExample")
    assert f"\n  nightmill models {name}" in command.epilog
    known = {option for parameter in command.params for option in parameter.opts}
    assert {"--home", "--result"} <= known
    assert set(re.findall(r"(--[a-z-]+)", command.epilog)) <= known


def test_the_list_of_commands_answers_without_heavy_imports() -> None:
    code = (
        "import sys\nfrom jobs.__main__ import app\n"
        "try:\n    app(['models', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('mlflow', 'pandas', 'torch') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert told[-1] == "[]"
    assert all(any(line.strip().startswith(name) for line in told) for name in COMMANDS)


def test_a_typing_error_gets_a_hint() -> None:
    done = CliRunner().invoke(app, ["models", "promot", "tickets"])
    assert done.exit_code == 2
    assert "no such command 'promot' (did you mean 'promote'?)" in done.stderr


def test_home_and_result_may_stand_before_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    @click.command()
    @click.option("--home")
    @click.option("--result")
    @click.argument("name")
    def command(home: str, result: str, name: str) -> None:
        seen.append((home, result, name))

    monkeypatch.setattr("jobs.models_show.list_models", command)
    before = ["models", "--home", str(tmp_path), "--result", "r.json", "list", "tickets"]
    assert CliRunner().invoke(app, before).exit_code == 0
    assert CliRunner().invoke(app, [*before, "--result", "later.json"]).exit_code == 0
    assert seen == [(str(tmp_path), "r.json", "tickets"), (str(tmp_path), "later.json", "tickets")]


@pytest.mark.parametrize(
    ("text", "address", "uri"),
    [
        ("tickets", ModelAddress("tickets"), "models:/tickets"),
        ("tickets@champion", ModelAddress("tickets", "@champion"), "models:/tickets@champion"),
        ("tickets/3", ModelAddress("tickets", "3"), "models:/tickets/3"),
        ("models:/tickets/3", ModelAddress("tickets", "3"), "models:/tickets/3"),
    ],
)
def test_a_model_is_named_in_three_ways(text: str, address: ModelAddress, uri: str) -> None:
    assert parse_address(text) == address
    assert str(address) == uri


@pytest.mark.parametrize("text", ["", "a/b", "a@", "@champion", "a'b", "a@b@c", "tickets/3x"])
def test_another_form_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME, NAME@ALIAS or NAME/VERSION"):
        parse_address(text)


def test_a_name_alone_is_asked_for() -> None:
    assert parse_name("tickets") == "tickets"
    with pytest.raises(ConfigError, match="expected a name alone, as 'tickets'"):
        parse_name("tickets@champion")


def test_a_date_is_a_day_in_utc_and_a_time_a_moment() -> None:
    day = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)
    assert parse_moment("2026-11-28") == (day, day + dt.timedelta(days=1))
    half_past_two = day.replace(hour=2, minute=30)
    assert parse_moment("2026-11-28T02:30") == (half_past_two, half_past_two)
    assert parse_moment("2026-11-28T04:30+02:00")[0] == half_past_two
    with pytest.raises(ConfigError, match=r"--at: expected YYYY-MM-DD .*, got 'yesterday'"):
        parse_moment("yesterday")


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that passes for a bundle; its digest is in the file `digest`."""

    class Spec:
        def __init__(self, digest: str) -> None:
            self.digest = digest

    monkeypatch.setattr(
        "jobs.models_pull.load_spec", lambda folder: Spec((folder / "digest").read_text())
    )
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "digest").write_text("d1")
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_bundle_comes_whole_into_a_new_or_an_empty_folder(bundle: Path, tmp_path: Path) -> None:
    put_bundle(bundle, tmp_path / "a" / "new", digest="d1")
    assert (tmp_path / "a" / "new" / "digest").read_text() == "d1"
    (tmp_path / "empty").mkdir()
    put_bundle(bundle, tmp_path / "empty", digest="d1")
    assert names_in(tmp_path / "empty") == ["digest"]


def test_what_is_there_is_never_overwritten(bundle: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("kept")
    (tmp_path / "file").write_text("kept")
    for place in (full, tmp_path / "file"):
        with pytest.raises(ConfigError, match="exists and is not an empty folder"):
            put_bundle(bundle, place, digest="d1")
    assert names_in(tmp_path) == ["cache", "file", "full"]


def test_a_copy_that_is_not_what_was_registered_does_not_stay(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="has digest d1, registered was d2"):
        put_bundle(bundle, tmp_path / "new", digest="d2")
    assert names_in(tmp_path) == ["cache"]


def test_a_place_that_cannot_be_written_is_told(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        put_bundle(bundle, tmp_path / "file" / "below", digest="d1")
