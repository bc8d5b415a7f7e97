"""A mark that outlives the process that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.attempts import Attempts, signs_of_life

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "attempts" / "00003")


def test_only_attempts_that_never_came_back_count_as_ends_of_a_worker(attempts: Attempts) -> None:
    assert attempts.begin() == 0
    assert attempts.begin() == 1  # the first has not said a word
    attempts.returned()
    assert attempts.begin() == 1
    assert attempts.begin() == 2


def test_a_row_is_a_culprit_once_it_has_ended_enough_processes(attempts: Attempts) -> None:
    for row in (12, 7, 12, 9, 9):
        attempts.ended_alone(row)
    assert attempts.culprits(1) == (7, 9, 12)
    assert attempts.culprits(2) == (9, 12)
    assert attempts.culprits(3) == ()
    assert attempts.begin() == 0  # what a child did is no end of a worker


def test_a_shard_that_is_done_has_no_attempts(attempts: Attempts, tmp_path: Path) -> None:
    attempts.begin()
    attempts.clear()
    attempts.clear()
    assert attempts.begin() == 0
    attempts.clear()
    assert list((tmp_path / "attempts").iterdir()) == []


def test_every_word_is_a_sign_of_life(attempts: Attempts, tmp_path: Path) -> None:
    folder = tmp_path / "attempts"
    assert signs_of_life(folder) == {}
    seen = []
    for say in (attempts.begin, attempts.alive, attempts.alive, attempts.returned):
        say()
        seen.append(signs_of_life(folder)["00003"])
    assert sorted(set(seen)) == seen
