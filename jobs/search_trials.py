"""Trials on Ray Tune: started one after another or side by side, the weak ones stopped by ASHA."""

from __future__ import annotations

import logging
import math
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from jobs.ray_session import ray_session
from jobs.ray_training import prepare_worker
from jobs.search_journal import Failed, Journal, Told
from jobs.training import learn, prepare
from pipeline.model.search_outcome import is_over
from pipeline.model.search_space import sampled, task_with
from schemas.errors import NightmillError, ShardError
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.model.fit import Progress
    from schemas.search import SearchConfig
    from schemas.searched import Settings

_METRIC = "valid_macro_f1"
_TUNE_VARIABLES = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # CSV, JSON and TensorBoard files of each trial
    # The journal knows all that an interrupted search has to know; a handler of Ray's would make
    # Ctrl-C look like the end of every trial.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",  # it prints even where it is told to be silent
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # addresses in a task may be relative
}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialPlan:
    """What all trials have in common."""

    task: TaskConfig
    search: SearchConfig
    folder: Path
    pad_id: int
    epochs: int
    first_rung: int
    concurrent: int
    threads: int


def run_trials(
    plan: TrialPlan, settings: Sequence[Settings], *, journal: Path, scratch: Path
) -> dict[int, ShardError]:
    """Runs trials until each is over, stopped or failed; answers the ones whose process died.

    All else is in `journal`. A trial that is known there tells its epochs again, so that the
    scheduler judges as before, and trains only where it has to go on from there.
    """
    known = Journal(journal)
    todo = [trial for trial in range(len(settings)) if trial not in known.failed]
    if not todo:
        return {}
    work = {
        "task": plan.task.model_dump(mode="json"),
        "folder": str(plan.folder.resolve()),
        "pad_id": plan.pad_id,
        "threads": plan.threads,
        "epochs": plan.epochs,
        "sample_fraction": plan.search.sample_fraction,
        "settings": list(settings),
        "told": [
            [(told.macro_f1, told.seconds) for told in known.epochs_of(trial)]
            for trial in range(len(settings))
        ],
    }
    with _quiet_tune(), ray_session(cpus=plan.concurrent):
        tuner = tune.Tuner(
            tune.with_resources(run_trial, {"cpu": 1}),
            param_space=work | {"trial": tune.grid_search(todo)},
            tune_config=tune.TuneConfig(
                metric=_METRIC,
                mode="max",
                scheduler=ASHAScheduler(
                    max_t=plan.epochs,
                    grace_period=plan.first_rung,
                    reduction_factor=plan.search.reduction_factor,
                ),
                max_concurrent_trials=plan.concurrent,
                reuse_actors=True,  # a new process takes seconds to import torch
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(scratch.resolve()),
                verbose=0,
                callbacks=[_Scribe(known, settings, plan.epochs)],
            ),
        )
        results = tuner.fit()
    return {result.config["trial"]: _reason(result.error) for result in results if result.error}


class _Scribe(tune.Callback):  # type: ignore[misc]  # Ray has no types
    """Writes the journal and the log while trials run."""

    def __init__(self, journal: Journal, settings: Sequence[Settings], epochs: int) -> None:
        self._journal, self._settings, self._epochs = journal, settings, epochs

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        number = trial.config["trial"]
        words = ", ".join(f"{key} {value:g}" for key, value in self._settings[number].items())
        known = len(self._journal.epochs_of(number))
        again = f" ({known} epochs are known)" if known else ""
        log.info("trial %d of 0 to %d: %s%s", number, len(self._settings) - 1, words, again)

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        number = trial.config["trial"]
        if result["error"] is not None:
            failed = Failed(number, **result["error"])
            if self._journal.note(failed):
                log.warning("trial %d failed, the others go on: %s", number, failed.message)
            return
        told = Told(number, result["epoch"], result[_METRIC], result["seconds"])
        if self._journal.note(told):
            log.info(
                "trial %d, epoch %d/%d: valid macro-F1 %.4f",
                told.trial, told.epoch, self._epochs, told.macro_f1,
            )  # fmt: skip

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        log.warning("trial %d: its process died, the others go on", trial.config["trial"])


def run_trial(work: dict[str, Any]) -> None:
    """Trains with the settings of trial `work["trial"]`, in a worker, and reports each epoch.

    An error of ours is a last report: a worker that ended would be missed by the next trial.
    """
    told = work["told"][work["trial"]]
    for epoch, (macro_f1, seconds) in enumerate(told, start=1):
        _report(epoch, macro_f1, seconds)
    task = TaskConfig.model_validate(work["task"])
    scores = [macro_f1 for macro_f1, _ in told]
    if is_over(scores, epochs=work["epochs"], patience=task.train.patience_epochs):
        return
    prepare_worker("search", threads=work["threads"])
    try:
        _train(task_with(task, work["settings"][work["trial"]]), work, known=len(told))
    except NightmillError as error:
        told_error = {"kind": type(error).__name__, "message": str(error)}
        # ASHA takes percentiles without what is no number.
        tune.report({"epoch": 0, _METRIC: math.nan, "seconds": 0.0, "error": told_error})


def _train(task: TaskConfig, work: dict[str, Any], *, known: int) -> None:
    started, folder = time.monotonic(), Path(work["folder"])

    def report(progress: Progress, _state: dict[str, Any], _is_best: bool) -> None:
        if progress.epoch > known:
            score = progress.history[-1][_METRIC]
            _report(progress.epoch, score, time.monotonic() - started)

    parts = prepare(task, folder)
    train = sampled(parts.train, work["sample_fraction"], seed=task.train.seed)
    learn(replace(parts, train=train), task, folder, pad_id=work["pad_id"], on_epoch=report)


def _report(epoch: int, macro_f1: float, seconds: float) -> None:
    told = {"epoch": epoch, _METRIC: macro_f1, "seconds": round(seconds, 1), "error": None}
    tune.report(told)


def _reason(error: Exception) -> ShardError:
    """What became of a trial's process, or of code that is not ours."""
    what = getattr(error, "cause", None) or error
    return ShardError(
        f"{type(what).__name__} ({' '.join(str(what).split())[:300]}); a new --run tries it again"
    )


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Ray Tune leaves files, output and handlers to us while the block runs."""
    before = {name: os.environ.get(name) for name in _TUNE_VARIABLES}
    logger = logging.getLogger("ray.tune")
    level = logger.level
    os.environ |= _TUNE_VARIABLES
    logger.setLevel(logging.CRITICAL)  # errors of trials are told in our words
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
