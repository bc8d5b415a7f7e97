"""From the trigger form to the jobs' command lines."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_NAME_CHARS = 60
AUTO = "auto"


def run_name(run_id: str) -> str:
    """A folder-safe name, always the same for the same run, so that a retry finds its work."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", run_id).strip("-")[:_MAX_NAME_CHARS]
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    return f"{safe}-{digest}" if safe else digest


def training_overrides(params: Mapping[str, Any]) -> list[str]:
    """`key.sub=value` arguments of what the form sets; an empty field leaves the task's own."""
    fields = {
        "train.epochs": params["epochs"],
        "train.backbone": (params["backbone"] or "").strip(),
        "train.seed": params["seed"],
    }
    return [f"{key}={value}" for key, value in fields.items() if value]


def plan_of(params: Mapping[str, Any], run_id: str) -> dict[str, list[str]]:
    """Arguments of each step of a run, promotion excepted."""
    base = [params["task"], "--run", run_name(run_id)]
    training = training_overrides(params)
    precision = params["precision"]
    compression = [] if precision == AUTO else [f"compress.prefer=[{precision}]"]
    return {
        "finetune": [*base, *training],
        "bundle": [*base, *training, *compression],
        "register": base,
    }


def promotion_arguments(*, task: str, version: Any, approver: str, reason: str) -> list[str]:
    """Arguments of the promotion; who answers for it and why stand in the history."""
    return [task, "--version", str(version), "--approver", approver, "--reason", reason]
