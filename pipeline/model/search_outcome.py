"""How trials of a search are judged: when one is over, which one wins, and the table of all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.search import SearchConfig
    from schemas.searched import Searched, Trial


def first_rung(search: SearchConfig, *, epochs: int) -> int:
    """Epochs that every trial gets.

    A third by default: rates warm up during the first tenth of the steps, and after one epoch of
    six a high rate mostly looks better than it is.
    """
    return min(search.min_epochs or math.ceil(epochs / 3), epochs)


def is_over(macro_f1: Sequence[float], *, epochs: int, patience: int) -> bool:
    """Whether a trial with this history has nothing left to do; the rule that `fit` ends by."""
    best = macro_f1.index(max(macro_f1)) + 1 if macro_f1 else 0
    return len(macro_f1) >= epochs or len(macro_f1) - best >= patience


def pick_winner(trials: Sequence[Trial]) -> tuple[int, str]:
    """Number of the trial with the highest macro-F1, the earliest of equals, and why it won.

    `trials` must hold one that did not fail.
    """
    sound = [trial for trial in trials if trial.outcome != "failed"]
    winner = max(sound, key=lambda trial: (trial.best, -trial.number))
    epoch = winner.macro_f1.index(winner.best) + 1
    why = (
        f"trial {winner.number} has the highest validation macro-F1 of {len(trials)}: "
        f"{winner.best:.4f} after epoch {epoch}"
    )
    if winner.number == 0:
        return 0, f"{why}, with the recipe's own settings"
    own = next((trial for trial in sound if trial.number == 0), None)
    return winner.number, f"{why}; the recipe's own settings " + (
        "failed" if own is None else f"have {own.best:.4f}"
    )


def table_rows(searched: Searched) -> list[list[str]]:
    """Trials as rows of text, a heading first, the best trial on top and failed ones last."""
    keys = list(searched.trials[0].settings)
    rows = [["trial", *keys, "macro-F1", "epochs", "ended", "seconds"]]
    ranked = sorted(
        searched.trials, key=lambda trial: (trial.outcome == "failed", -trial.best, trial.number)
    )
    for trial in ranked:
        name = f"{trial.number} (recipe)" if trial.number == 0 else str(trial.number)
        score = f"{trial.best:.4f}" if trial.macro_f1 else "-"
        values = [f"{trial.settings[key]:g}" for key in keys]
        ended = "won" if trial.number == searched.winner else trial.outcome
        epochs = f"{len(trial.macro_f1)}/{searched.epochs}"
        rows.append([name, *values, score, epochs, ended, f"{trial.seconds:.0f}"])
    return rows
