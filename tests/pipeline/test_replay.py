"""Which rows a replay takes up, and when it refuses to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from schemas.errors import DataContractError
from schemas.reasons import Reason

if TYPE_CHECKING:
    from pipeline.replay import ReplayPlan

SHORT, BLANK, SAME = Reason.TEXT_TOO_SHORT, Reason.MISSING_TEXT, Reason.DUPLICATE_ID


def rows_by_shard(found: ReplayPlan) -> dict[int, Any]:
    return {shard.index: shard.only_rows for shard in found.shards}


def test_all_quarantined_rows_are_taken_up_in_their_shards(night: Any) -> None:
    found = night.replay()
    assert found.count == 6
    assert rows_by_shard(found) == {0: (1, 2, 3, 4), 1: (11, 12)}


def test_only_rows_of_the_reasons_asked_for_are_taken_up(night: Any) -> None:
    assert rows_by_shard(night.replay(SHORT)) == {0: (1, 3), 1: (12,)}
    assert rows_by_shard(night.replay(BLANK)) == {0: (4,)}
    assert rows_by_shard(night.replay(BLANK, SHORT)) == {0: (1, 3, 4), 1: (12,)}
    assert rows_by_shard(night.replay(Reason.WRONG_TYPE)) == {}


def test_exactly_the_rows_taken_up_are_read(night: Any) -> None:
    found = night.replay()
    results = [night.outcome(found.plan, shard) for shard in found.shards]
    assert [scored for scored, _ in results] == [["t1", "t3"], ["t12"]]
    # A repeated id stays rejected, since the first row with it is there.
    assert [(r.source_row, r.reason) for _, rejected in results for r in rejected] == [
        (2, Reason.INVALID_JSON), (4, BLANK), (11, SAME),
    ]  # fmt: skip


@pytest.mark.parametrize("change", ["altered", "gone", "more"])
def test_another_input_is_refused(night: Any, lines: list[str], change: str) -> None:
    another = night.input.with_name("b.jsonl")
    if change == "altered":
        night.write([*lines[:-1], lines[-1].replace("long", "lone")])
    elif change == "gone":
        night.input.rename(another)
    else:
        another.write_text(lines[0].replace("t0", "u0") + "\n")
    run = night.partition.published().run
    with pytest.raises(
        DataContractError,
        match=rf"tiny 2026-11-28: the input is not what run {run} was scored from .*"
        r"[ab]\.jsonl.*`nightmill score tiny --date 2026-11-28`",
    ):
        night.replay()


def test_the_fingerprint_follows_rows_reasons_and_settings(night: Any) -> None:
    plans = [
        night.replay(),
        night.replay(SHORT),
        night.replay(SHORT, Reason.WRONG_TYPE),
        night.replay(min_chars=2),
    ]
    runs = {plan.run for plan in plans}
    assert len(runs) == len(plans)
    assert night.partition.published().run not in runs
    assert night.replay().run == plans[0].run


def test_an_id_that_was_scored_since_stays_with_its_row(night: Any, lines: list[str]) -> None:
    """Row 2 was not read, so row 20 was scored under its id; it must not be doubled later on."""
    giant = json.dumps({"ticket_id": "t20", "subject": "", "body": "long " * 400})
    night.write([*lines[:2], giant, *lines[3:]])
    night.publish(night.plan(min_chars=5, max_record_bytes=1024))
    found = night.replay(Reason.RECORD_TOO_LARGE)
    assert rows_by_shard(found) == {0: (2,)}
    assert found.shards[0].repeats == {"ticket_id": (2,)}
    scored, rejected = night.outcome(found.plan, found.shards[0])
    assert scored == []
    assert [(row.source_row, row.reason) for row in rejected] == [(2, SAME)]
