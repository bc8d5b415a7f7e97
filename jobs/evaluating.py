"""The evaluation page of a run: what its steps left behind, and a look at the champion."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from jobs.diagnosing import DIAGNOSIS_FILE, SUSPECTS_FILE
from pipeline.engines.evaluation_page import write_evaluation_page
from pipeline.model.comparison import ChampionComparison, compare_with_champion
from pipeline.model.evaluation import Told, evaluate
from pipeline.model.findings import Diagnosis
from pipeline.model.label_errors import load_suspects
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.engines.registry import Registry
    from pipeline.model.bundling import Bundled
    from schemas.training import Finetuned, TrainingRun

PAGE_FILE = "evaluation.html"

log = logging.getLogger(__name__)


def write_evaluation(
    place: TrainingRun, bundled: Bundled, finetuned: Finetuned, registry: Registry
) -> Path:
    """Writes `evaluation.html` into the run's folder and answers its path."""
    champion = _champion(bundled, registry)
    for name, paired in champion.heads.items():
        log.info(
            "%s against champion version %s: %s, macro-F1 %+.4f (%+.4f to %+.4f)",
            name, champion.version, paired.verdict, paired.macro_f1_gain,
            *paired.macro_f1_gain_interval,
        )  # fmt: skip
    path = place.folder / PAGE_FILE
    write_evaluation_page(evaluate(bundled, _told(place, finetuned), champion), path)
    log.info("evaluation: %s", path)
    return path


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
    return Told(
        history=json.loads((place.folder / "progress.json").read_text())["history"],
        best_epoch=finetuned.best_epoch,
        rows=finetuned.rows,
        # Runs that were fine-tuned by an older version have neither.
        diagnosis=Diagnosis.read(diagnosis) if diagnosis.exists() else None,
        suspects=load_suspects(suspects) if suspects.exists() else (),
    )
