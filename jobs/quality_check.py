"""Quality of the last nights against what people decided later, beside what the model promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.outcome_report import compare_with_outcomes, read_night
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.errors import ArtifactError
from schemas.monitor import Finding

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from schemas.bundle import HeadMetrics
    from schemas.home import Home
    from schemas.manifest import ModelRef
    from schemas.task import TaskConfig


def quality_findings(
    task: TaskConfig, home: Home, days: Sequence[dt.date], *, model: ModelRef
) -> tuple[Finding, ...]:
    """One finding a head on the outcomes of those of `days` that this model has scored.

    Empty where the task names no outcomes, or too few have arrived.

    Raises:
        NightmillError: scores or outcomes cannot be read.
    """
    if task.data.outcomes is None:
        return ()
    nights = [read_night(home, task.name, day).manifest for day in days]
    measured = compare_with_outcomes(
        task, home, [night for night in nights if night.model.digest == model.digest]
    )
    promised = _promised(task, home, model)
    return tuple(
        _finding(head, metrics, promised.get(head), task)
        for head, metrics in measured.items()
        if metrics.rows >= task.monitor.min_outcome_rows
    )


def _finding(head: str, now: HeadMetrics, then: HeadMetrics | None, task: TaskConfig) -> Finding:
    low, high = now.macro_f1_interval
    told = f"macro-F1 of head {head} {now.macro_f1:.3f} ({low:.3f} to {high:.3f}) on {now.rows} "
    told += "outcomes"
    if then is None:
        told += ", that of the model's held-out rows is not at hand"
        return Finding(check=f"quality of {head}", level="ok", told=told, value=now.macro_f1)
    floor = then.macro_f1 - task.monitor.max_metric_drop
    return Finding(
        check=f"quality of {head}",
        # Only what is sure asks for a new model: the interval must lie below the floor as a whole.
        level="retrain" if high < floor else "watch" if now.macro_f1 < floor else "ok",
        told=f"{told}, {then.macro_f1:.3f} on held-out rows",
        value=now.macro_f1,
        limit=floor,
    )


def _promised(task: TaskConfig, home: Home, model: ModelRef) -> Mapping[str, HeadMetrics]:
    """Held-out metrics of the bundle that scored; empty where no copy of it lies here."""
    folders = [home.downloads / model.digest[:16]]
    if task.model_uri.startswith("path:"):
        folders.append(Path(task.model_uri.removeprefix("path:")))
    for folder in folders:
        try:
            spec = BundleSpec.read(folder / BUNDLE_FILE)
        except (ArtifactError, OSError):
            continue
        if spec.digest == model.digest:
            return spec.metrics
    return {}
