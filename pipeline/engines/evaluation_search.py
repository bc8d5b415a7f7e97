"""The part of an evaluation page that tells how the recipe was found: trials, and which one won."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pipeline.engines.evaluation_plots import trials_plot
from pipeline.engines.page_parts import percent, table

if TYPE_CHECKING:
    from schemas.searched import Searched, Trial

_ENDED = {
    "finished": "finished",
    "stopped": "stopped early as one of the weaker ones (ASHA)",
    "failed": "failed",
}


def search_section(searched: Searched) -> str:
    """Why the run trained with these settings, and what each trial came to by epoch."""
    ranked = sorted(
        searched.trials, key=lambda trial: (trial.outcome == "failed", -trial.best, trial.number)
    )
    curves = [(trial.number, trial.macro_f1) for trial in ranked if trial.macro_f1]
    parts = [
        "<h2>Search of the recipe</h2>",
        f'<p class="lead-line">{_in_words(searched)}</p>',
        trials_plot("Validation macro-F1 by trial", curves, chosen=searched.winner),
        f'<div class="wide">{_trials(searched, ranked)}</div>',
        '<p class="faint">The best of several on the same validation records looks a little '
        "better there than it is; the heads' figures on test records do not.</p>",
    ]
    return "\n".join(parts)


def _in_words(searched: Searched) -> str:
    words = [
        f"{escape(searched.why[:1].upper() + searched.why[1:])}.",
        f"Each of {len(searched.trials)} trials had up to {searched.epochs} epochs",
    ]
    if searched.sample_fraction < 1:
        words[-1] += f" on {percent(searched.sample_fraction)} of the training records"
    words[-1] += "."
    if searched.not_searched:
        told = ", ".join(map(escape, searched.not_searched))
        words.append(f"Not searched, as the task file says them: {told}.")
    return " ".join(words)


def _trials(searched: Searched, ranked: list[Trial]) -> str:
    keys = list(searched.trials[0].settings)
    titles = [
        "Trial", *(f"-{escape(key)}" for key in keys),
        "-Macro-F1", "By epoch", "-Epochs", "Ended", "-Seconds",
    ]  # fmt: skip
    lines = [_line(trial, keys, searched) for trial in ranked]
    return table(titles, lines, kind="compact narrow")


def _line(trial: Trial, keys: list[str], searched: Searched) -> list[str]:
    name = f"{trial.number}, the recipe's own" if trial.number == 0 else str(trial.number)
    is_chosen = trial.number == searched.winner
    ended = _ENDED[trial.outcome]
    if trial.error is not None:
        ended += f": {escape(trial.error)}"
    return [
        f'{name} <span class="mark passed">chosen</span>' if is_chosen else name,
        *(f"{trial.settings[key]:g}" for key in keys),
        f"{trial.best:.4f}" if trial.macro_f1 else "–",
        " ".join(f"{score:.3f}" for score in trial.macro_f1),
        f"{len(trial.macro_f1)}/{searched.epochs}",
        ended,
        f"{trial.seconds:.0f}",
    ]
