"""From the trigger form to the jobs' command lines."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from dags.retraining.form import AUTO
from schemas.errors import ConfigError
from schemas.load import load_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.home import Home
    from schemas.task import TaskConfig

_MAX_NAME_CHARS = 60
# What `prune` cuts where the task file does not say: the least that makes a night faster, by
# docs/pruning.md.
PRUNE_BY_DEFAULT = ("compress.prune.heads=0.25", "compress.prune.neurons=0.25")


def run_name(run_id: str) -> str:
    """A folder-safe name, always the same for the same run, so that a retry finds its work."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", run_id).strip("-")[:_MAX_NAME_CHARS]
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return f"{safe}-{digest}" if safe else digest


def plan_of(params: Mapping[str, Any], run_id: str, *, home: Home) -> dict[str, list[str]]:
    """Arguments of each step of a run, the decision excepted.

    Raises:
        ConfigError: the task file, or what the form sets over it, is not sound.
    """
    own = load_task(params["task"], home)
    training = [*training_overrides(params), *_distil_overrides(params, own)]
    compression = _compress_overrides(params, own)
    # Hours of work would go before the job that reads a setting refuses it.
    load_task(params["task"], home, overrides=[*training, *compression])
    base = [params["task"], "--run", run_name(run_id)]
    reason = _given(params["reason"])
    return {
        "finetune": [*base, *(["--reason", reason] if reason else []), *training],
        "bundle": [*base, *training, *compression],
        "register": base,
    }


def training_overrides(params: Mapping[str, Any]) -> list[str]:
    """`key.sub=value` arguments of what the form sets; an empty field leaves the task's own."""
    fields = {
        "data.labelled": _text(params["labelled"]),
        "train.epochs": params["epochs"] or None,
        "train.backbone": _text(params["backbone"]),
        "train.batch_size": params["batch_size"] or None,
        "train.learning_rate": _given(params["learning_rate"]) or None,
        "train.frozen_layers": params["frozen_layers"] if params["frozen_layers"] >= 0 else None,
        "train.seed": params["seed"] or None,
    }
    return [f"{key}={value}" for key, value in fields.items() if value is not None]


def _distil_overrides(params: Mapping[str, Any], own: TaskConfig) -> list[str]:
    teacher = _text(params["teacher"])
    if not params["distil"]:
        if teacher is not None:
            raise ConfigError(
                f"teacher {_given(params['teacher'])!r} is named, but nobody learns from it: turn "
                f"'Learn from a teacher' on, or leave Teacher empty"
            )
        return []
    if teacher is not None:
        return [f"distil.teacher={teacher}"]
    if own.distil is None:
        raise ConfigError(
            f"task {own.name!r} names no teacher: fill in Teacher, such as models:/{own.name}"
            f"@champion, or give the task file a section distil"
        )
    return []


def _compress_overrides(params: Mapping[str, Any], own: TaskConfig) -> list[str]:
    pruning = PRUNE_BY_DEFAULT if params["prune"] and own.compress.prune is None else ()
    precision = params["precision"]
    return [*pruning, *([] if precision == AUTO else [f"compress.prefer=[{precision}]"])]


def _given(text: str | None) -> str:
    return (text or "").strip()


def _text(text: str | None) -> str | None:
    """A text as an override says it, which reads values as YAML; None where there is none."""
    given = _given(text)
    if not given:
        return None
    try:
        is_plain = yaml.safe_load(given) == given
    except yaml.YAMLError:
        is_plain = False
    return given if is_plain else json.dumps(given)
