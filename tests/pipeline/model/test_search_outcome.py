"""How trials are judged: when one is over, which one wins, and the table of all."""

from __future__ import annotations

import pytest

from pipeline.model.search_outcome import first_rung, is_over, pick_winner, table_rows
from schemas.search import SearchConfig
from schemas.searched import Searched, Trial


def trial(number: int, *scores: float, outcome: str = "finished") -> Trial:
    return Trial.model_validate(
        {"number": number, "settings": {"learning_rate": 1e-4 * (number + 1), "batch_size": 32},
         "macro_f1": scores, "outcome": outcome, "seconds": 10.0 * len(scores),
         "error": "DivergenceError: nan" if outcome == "failed" else None}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "epochs", "expected"),
    [(None, 6, 2), (None, 4, 2), (None, 1, 1), (3, 6, 3), (9, 6, 6)],
)
def test_a_third_of_the_epochs_is_for_all(asked: int | None, epochs: int, expected: int) -> None:
    assert first_rung(SearchConfig(min_epochs=asked), epochs=epochs) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], False),
        ([0.5, 0.6, 0.7, 0.8], True),  # all epochs
        ([0.5, 0.4, 0.4], True),  # two epochs no better than the first
        ([0.5, 0.5, 0.5], True),  # equal is no better
        ([0.5, 0.4, 0.6], False),
    ],
)
def test_a_trial_is_over_as_training_is(scores: list[float], expected: bool) -> None:
    assert is_over(scores, epochs=4, patience=2) is expected


def test_the_highest_of_all_epochs_wins() -> None:
    trials = [trial(0, 0.7, 0.6), trial(1, 0.5, outcome="stopped"), trial(2, 0.6, 0.75)]
    assert pick_winner(trials) == (
        2,
        "trial 2 has the highest validation macro-F1 of 3: 0.7500 after epoch 2; "
        "the recipe's own settings have 0.7000",
    )


def test_of_equals_the_recipe_stays() -> None:
    winner, why = pick_winner([trial(0, 0.7), trial(1, 0.7)])
    assert winner == 0
    assert why.endswith("0.7000 after epoch 1, with the recipe's own settings")


def test_a_trial_that_failed_loses_whatever_it_had() -> None:
    trials = [trial(0, 0.9, outcome="failed"), trial(1, 0.2), trial(2, 0.3, outcome="stopped")]
    winner, why = pick_winner(trials)
    assert winner == 2
    assert why.endswith("; the recipe's own settings failed")


def test_the_table_has_the_best_on_top_and_failures_last() -> None:
    trials = (trial(0, 0.7, 0.6), trial(1, outcome="failed"), trial(2, 0.5, outcome="stopped"))
    searched = Searched(fingerprint="f", trials=trials, winner=0, why="it is", epochs=2)
    assert table_rows(searched) == [
        ["trial", "learning_rate", "batch_size", "macro-F1", "epochs", "ended", "seconds"],
        ["0 (recipe)", "0.0001", "32", "0.7000", "2/2", "won", "20"],
        ["2", "0.0003", "32", "0.5000", "1/2", "stopped", "10"],
        ["1", "0.0002", "32", "-", "0/2", "failed", "0"],
    ]
    assert searched.settings == {"learning_rate": 1e-4, "batch_size": 32}
    assert isinstance(searched.settings["batch_size"], int)
