"""The evaluation page of a run: what its steps left behind, and a look at the champion."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from jobs.diagnosing import DIAGNOSIS_FILE, SUSPECTS_FILE
from pipeline.engines.evaluation_page import write_evaluation_page
from pipeline.model.comparison import ChampionComparison, compare_with_champion
from pipeline.model.evaluation import Told, evaluate
from pipeline.model.facets import TIME
from pipeline.model.findings import Diagnosis
from pipeline.model.label_errors import load_suspects
from schemas.errors import ArtifactError
from schemas.searched import SEARCH_FILE, Searched

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.engines.registry import Registry
    from pipeline.model.bundling import Bundled
    from pipeline.model.evaluation import Evaluation
    from schemas.training import Finetuned, TrainingRun

PAGE_FILE = "evaluation.html"
COMPARISON_FILE = "comparison.json"

log = logging.getLogger(__name__)


def write_evaluation(
    place: TrainingRun, bundled: Bundled, finetuned: Finetuned, registry: Registry
) -> Path:
    """Writes `evaluation.html` into the run's folder and answers its path.

    Quality by time is logged to MLflow, where the task names a column for it.
    What was compared with the champion is left there as well, as `comparison.json`.
    """
    champion = _champion(bundled, registry)
    champion.write(place.folder / COMPARISON_FILE)
    for name, paired in champion.heads.items():
        log.info(
            "%s against champion version %s: %s, macro-F1 %+.4f (%+.4f to %+.4f)",
            name, champion.version, paired.verdict, paired.macro_f1_gain,
            *paired.macro_f1_gain_interval,
        )  # fmt: skip
    path = place.folder / PAGE_FILE
    evaluation = evaluate(bundled, _told(place, finetuned), champion)
    write_evaluation_page(evaluation, path)
    if figures := _by_time(evaluation):
        registry.log_metrics(finetuned.mlflow_run_id, figures)
    log.info("evaluation: %s", path)
    return path


def _by_time(evaluation: Evaluation) -> dict[str, float]:
    """Figures such as `test.queue.time.2026-02.macro_f1`; of a period with few records its rows."""
    found: dict[str, float] = {}
    for head in evaluation.heads:
        for period, figures in head.slices.get(TIME, {}).items():
            name = f"test.{head.name}.{TIME}.{period}"
            found[f"{name}.rows"] = figures.rows
            if figures.accuracy is not None and figures.macro_f1 is not None:
                found[f"{name}.accuracy"] = figures.accuracy
                found[f"{name}.macro_f1"] = figures.macro_f1
    return found


def _champion(bundled: Bundled, registry: Registry) -> ChampionComparison:
    """A champion that cannot be read is told of on the page, and stops nothing."""
    task = bundled.spec.task.name
    version = registry.champion(task)
    if version is None:
        return ChampionComparison(notes=("The task has no champion yet.",))
    try:
        _, folder = registry.fetch(f"models:/{task}/{version}")
        return compare_with_champion(bundled, folder, version=version)
    except ArtifactError as error:
        log.warning("champion version %s cannot be compared with: %s", version, error)
        note = "Its files cannot be read, so it was not compared; see the log."
        return ChampionComparison(version=version, notes=(note,))


def _told(place: TrainingRun, finetuned: Finetuned) -> Told:
    diagnosis, suspects = place.folder / DIAGNOSIS_FILE, place.folder / SUSPECTS_FILE
    search = place.folder / SEARCH_FILE
    return Told(
        history=json.loads((place.folder / "progress.json").read_text())["history"],
        best_epoch=finetuned.best_epoch,
        rows=finetuned.rows,
        # Runs that were fine-tuned by an older version have neither.
        diagnosis=Diagnosis.read(diagnosis) if diagnosis.exists() else None,
        suspects=load_suspects(suspects) if suspects.exists() else (),
        searched=Searched.read(search) if search.exists() else None,
    )
