"""The search of a recipe: trials on the training records, and the settings that the run takes."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from jobs.search_journal import Journal
from jobs.search_trials import TrialPlan, run_trials
from jobs.training import prepare
from pipeline.engines.host import usable_cpus
from pipeline.model.search_outcome import first_rung, is_over, pick_winner, table_rows
from pipeline.model.search_space import draw_trials, searched_keys, setting_path
from schemas.fingerprint import digest_of
from schemas.searched import SEARCH_FILE, Searched, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.engines.registry import Registry
    from pipeline.model.recipe import Recipe
    from schemas.errors import NightmillError
    from schemas.search import SearchConfig
    from schemas.searched import Settings
    from schemas.task import TaskConfig
    from schemas.training import TrainingRun

_FOLDER = "search"
# So many threads a training of a small encoder still makes use of.
_CPUS_PER_TRIAL = 8
log = logging.getLogger(__name__)


def search_recipe(
    config: TaskConfig, place: TrainingRun, *, search: SearchConfig, pad_id: int, fingerprint: str
) -> Searched:
    """Runs the search that `train.search` asks for, or answers what the same one gave before.

    Only training and validation records are read. `search.json` is left in the run's folder; what
    a killed search has done already is not done again.

    Raises:
        ConfigError: there is nothing to search, or values do not go together with the task.
        NightmillError: every trial failed, and this is how the first did.
    """
    path = place.folder / SEARCH_FILE
    if path.exists() and (known := Searched.read(path)).fingerprint == fingerprint:
        log.info("the search is done already: %s", known.why)
        return known
    recipe = prepare(config, place.folder).recipe
    settings = draw_trials(config.train, search, recipe, distil=config.distil)
    plan = _plan(config, place, search, recipe, pad_id=pad_id, trials=len(settings))
    not_searched = _log_plan(plan, len(settings))
    folder = place.folder / _FOLDER
    # What a kill left of other settings, or of another version's trials, is not taken up.
    journal = folder / f"{digest_of([fingerprint, settings])[:16]}.jsonl"
    shutil.rmtree(folder / "ray", ignore_errors=True)
    died = run_trials(plan, settings, journal=journal, scratch=folder / "ray")
    told = Journal(journal)
    failed = {number: failure.error for number, failure in told.failed.items()} | died
    if len(failed) == len(settings):
        shutil.rmtree(folder)  # so that the next run tries them all again
        first = failed[0]
        raise type(first)(f"train.search: all {len(failed)} trials failed, the first: {first}")
    trials = _trials(plan, settings, told, failed)
    winner, why = pick_winner(trials)
    done = Searched(
        fingerprint=fingerprint, trials=trials, winner=winner, why=why, epochs=plan.epochs,
        sample_fraction=search.sample_fraction, not_searched=not_searched,
    )  # fmt: skip
    done.write(path)
    shutil.rmtree(folder, ignore_errors=True)
    _log_table(done)
    return done


def log_search(found: Searched, place: TrainingRun, registry: Registry, run_id: str) -> None:
    """Logs to MLflow what won and why, each trial's macro-F1 by its number, and `search.json`."""
    chosen = {setting_path(key): value for key, value in found.settings.items()}
    registry.log_params(run_id, chosen)
    registry.tag(run_id, {"search": found.why})
    for trial in found.trials:
        if trial.outcome != "failed":
            registry.log_metrics(run_id, {"search.valid_macro_f1": trial.best}, step=trial.number)
    registry.log_file(run_id, place.folder / SEARCH_FILE, under="search")


def _log_plan(plan: TrialPlan, trials: int) -> tuple[str, ...]:
    """Tells what is searched; answers what is not, as the task file says it."""
    task = plan.task
    searched, said = searched_keys(task.train, plan.search, distil=task.distil)
    log.info(
        "searching %s in %d trials of up to %d epochs, %d at a time, %d threads each",
        ", ".join(searched), trials, plan.epochs, plan.concurrent, plan.threads,
    )  # fmt: skip
    if said:
        log.info("not searched, as the task file says them: %s", ", ".join(said))
    return tuple(said)


def _plan(
    config: TaskConfig,
    place: TrainingRun,
    search: SearchConfig,
    recipe: Recipe,
    *,
    pad_id: int,
    trials: int,
) -> TrialPlan:
    cpus = usable_cpus()
    concurrent = min(search.concurrent or max(1, cpus // _CPUS_PER_TRIAL), trials)
    return TrialPlan(
        task=config,
        search=search,
        folder=place.folder,
        pad_id=pad_id,
        epochs=recipe.epochs,
        first_rung=first_rung(search, epochs=recipe.epochs),
        concurrent=concurrent,
        threads=config.train.threads_per_worker or max(1, cpus // concurrent),
    )


def _trials(
    plan: TrialPlan,
    settings: list[Settings],
    journal: Journal,
    failed: Mapping[int, NightmillError],
) -> tuple[Trial, ...]:
    patience = plan.task.train.patience_epochs
    found = []
    for number, chosen in enumerate(settings):
        told = journal.epochs_of(number)
        scores = tuple(epoch.macro_f1 for epoch in told)
        error = failed.get(number)
        over = is_over(scores, epochs=plan.epochs, patience=patience)
        found.append(
            Trial(
                number=number,
                settings=chosen,
                macro_f1=scores,
                outcome="failed" if error else "finished" if over else "stopped",
                seconds=max((epoch.seconds for epoch in told), default=0.0),
                error=None if error is None else f"{type(error).__name__}: {error}",
            )
        )
    return tuple(found)


def _log_table(searched: Searched) -> None:
    rows = table_rows(searched)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        log.info("%s", "  ".join(cells))
    for trial in searched.trials:
        if trial.error is not None:
            log.warning("trial %d failed: %s", trial.number, trial.error)
    log.info("recipe by search: %s", searched.why)
