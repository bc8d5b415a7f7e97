"""Task files into typed configs: defaults < YAML < `key.sub=value` overrides."""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from schemas.errors import ConfigError, did_you_mean
from schemas.masking import mask_secrets
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.home import Home

SHIPPED_TASKS = Path(__file__).parent / "tasks"


def task_names(home: Home) -> tuple[str, ...]:
    """Names of all tasks that can be loaded: the user's own and the shipped ones, sorted."""
    files = [*home.tasks.glob("*.yaml"), *SHIPPED_TASKS.glob("*.yaml")]
    return tuple(sorted({file.stem for file in files}))


def find_task(name: str, home: Home) -> Path:
    """Path of a task file, by path or by name; the user's own task wins over a shipped one.

    Raises:
        ConfigError: there is no such task.
    """
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name)
        raise ConfigError(f"task file {name} does not exist")
    for folder in (home.tasks, SHIPPED_TASKS):
        if (path := folder / f"{name}.yaml").is_file():
            return path
    known = task_names(home)
    raise ConfigError(
        f"unknown task {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}; "
        f"a new one is made by `nightmill init FILE --text COLUMN --label COLUMN`"
    )


def load_task(name: str, home: Home, *, overrides: Sequence[str] = ()) -> TaskConfig:
    """The typed config of a task, overrides applied.

    Raises:
        ConfigError: no such task, bad YAML, an unknown key or a value out of range; the message
            has the dotted path of the culprit.
    """
    path = find_task(name, home)
    raw = _read_yaml(path)
    for override in overrides:
        _apply_override(raw, override)
    return parse_task(raw, source=str(path))


def parse_task(raw: Mapping[str, Any], *, source: str) -> TaskConfig:
    """The typed config of an already parsed mapping; `source` names it in messages.

    Raises:
        ConfigError: every problem found, one a line, each with its dotted path.
    """
    try:
        return TaskConfig.model_validate(raw)
    except ValidationError as error:
        problems = [_explain(problem) for problem in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(problems)) from None
    except ConfigError as error:  # of a label set, which knows its path but not the file
        raise ConfigError(f"{source}: {error}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping at the top, got {type(raw).__name__}")
    return raw


def _apply_override(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r}: expected key.sub=value")
    *parents, last = key.split(".")
    node = raw
    for parent in parents:
        if node.get(parent) is None:  # absent, or a section whose lines are all commented out
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {parent!r} is a value, not a section")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: value is not valid YAML: {error}") from error


def _explain(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        *parents, last = problem["loc"]
        return f"unknown key {path!r}{did_you_mean(str(last), _keys_at(parents))}"
    if problem["type"] == "missing":
        return f"missing key {path!r}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{path or 'task'}: {message[0].lower()}{message[1:]}, got {_short(problem['input'])}"


def _keys_at(parents: Sequence[int | str]) -> tuple[str, ...]:
    """Field names of the section at a dotted path; a free-form mapping passes its name over."""
    section: Any = TaskConfig
    for parent in parents:
        if isinstance(section, type) and issubclass(section, BaseModel):
            section = _present(section.model_fields[str(parent)].annotation)
        else:  # dict[str, Section]: the key is the user's own name
            section = get_args(section)[-1]
    if isinstance(section, type) and issubclass(section, BaseModel):
        return tuple(section.model_fields)
    return ()


def _present(annotation: Any) -> Any:
    """What `Section | None` is where it is said at all."""
    return get_args(annotation)[0] if isinstance(annotation, UnionType) else annotation


def _short(value: Any) -> str:
    text = mask_secrets(repr(value))  # before it is cut, which may leave half a password
    return text if len(text) <= 80 else text[:77] + "..."
