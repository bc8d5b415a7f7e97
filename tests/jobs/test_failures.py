"""Of several dates' failures one ends the job, and none is kept silent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from jobs.failures import Failures
from schemas.errors import DataContractError, NightmillError, ShardError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

BAD, LATE, TORN = DataContractError("bad"), TransientError("late"), ShardError("torn")


@pytest.mark.parametrize(
    ("failures", "outcome"), [([BAD], BAD), ([BAD, LATE, TORN], LATE), ([TORN, LATE], TORN)]
)
def test_what_a_retry_can_finish_comes_first(
    failures: Sequence[NightmillError],
    outcome: NightmillError,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Failures()
    for failure in failures:
        with kept.kept():
            raise failure
    with caplog.at_level(logging.ERROR), pytest.raises(NightmillError) as caught:
        kept.raise_outcome()
    assert caught.value is outcome
    others = [f"{type(f).__name__}: {f}" for f in failures if f is not outcome]
    assert [record.getMessage() for record in caplog.records] == others


def test_without_failures_blocks_run_to_their_end_and_nothing_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept, done = Failures(), []
    for date in (1, 2):
        with kept.kept():
            done.append(date)
    assert kept.raise_outcome() is None
    assert (done, caplog.records) == ([1, 2], [])


def test_a_bug_is_not_kept() -> None:
    kept = Failures()
    with pytest.raises(KeyError), kept.kept():
        raise KeyError("bug")
