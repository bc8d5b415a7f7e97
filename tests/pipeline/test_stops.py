"""A night is stopped with one message that has every reason, its count and three examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.rows import Rejected
from pipeline.staging import write_parquet
from pipeline.stops import check_stops
from pipeline.tables import quarantine_table
from schemas.errors import DataContractError
from schemas.manifest import Counters
from schemas.reasons import Reason, Stage
from schemas.task import ContractConfig, QuarantineConfig

if TYPE_CHECKING:
    from pathlib import Path


def rejected(reason: Reason, number: int, *, name: str | None = None, detail: str = "") -> Rejected:
    return Rejected(name, "in/a.csv", number, Stage.VALIDATE, reason, detail, b"secret text")


ROWS = [
    *[rejected(Reason.MISSING_TEXT, n, name=f"t{n}") for n in range(5)],
    rejected(Reason.TRUNCATED_FILE, 5),
    *[
        rejected(Reason.VALUE_OUT_OF_RANGE, n, name=f"t{n}", detail="column 'age': max_value 120")
        for n in (6, 7)
    ],
]
BY_REASON = {"missing_text": 5, "truncated_file": 1, "value_out_of_range": 2}


def counters(**changes: Any) -> Counters:
    values = {"rows_read": 100, "rows_scored": 92, "rows_quarantined": 8}
    return Counters(**values | {"quarantined_by_reason": BY_REASON} | changes)


@pytest.fixture
def staged(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "part-00000.parquet", tmp_path / "part-00001.parquet"]
    for file, rows in zip(files, (ROWS[:4], ROWS[4:]), strict=True):
        table = quarantine_table(rows, policy=QuarantineConfig(raw="hash"), contract_version="c")
        write_parquet(table, file)
    return files


def message(contract: ContractConfig, found: Counters, staged: list[Path]) -> str:
    with pytest.raises(DataContractError, match=r"^tiny 2026-11-28: ") as caught:
        check_stops(contract, found, staged, what="tiny 2026-11-28")
    return str(caught.value)


def test_too_many_rejects_are_told_by_reason_with_three_examples(staged: list[Path]) -> None:
    contract = ContractConfig(max_reject_fraction=0.07, stop_on=())
    told = message(contract, counters(), staged)
    assert "8 of 100 rows rejected (8.0%, allowed 7.0%): " in told
    assert "5 missing_text (such as t0, t1, t2), 1 truncated_file (such as in/a.csv:5), " in told
    assert told.endswith("nothing was published: mend the input, or relax the contract")
    assert "secret" not in told


def test_one_row_of_a_reason_in_stop_on_stops_the_night(staged: list[Path]) -> None:
    told = message(ContractConfig(max_reject_fraction=0.5), counters(), staged)
    assert (
        "rows rejected as truncated_file: 1 (such as in/a.csv:5), which stops the night by c"
        in told
    )
    assert "of 100 rows" not in told


def test_a_rule_that_stops_is_named_with_its_column_count_and_examples(staged: list[Path]) -> None:
    contract = ContractConfig(max_reject_fraction=0.5, stop_on=())
    found = counters(stopped={"age:max_value": 2, "queue:allowed": 1})
    told = message(contract, found, staged)
    assert "column 'age' breaks 'max_value': 2 (such as t6, t7), which stops the night" in told
    # The row's detail tells the first rule that it broke, which was another one.
    assert "column 'queue' breaks 'allowed': 1, which stops the night" in told


def test_all_problems_are_in_one_message(staged: list[Path]) -> None:
    contract = ContractConfig(max_reject_fraction=0.0)
    told = message(contract, counters(stopped={"age:max_value": 2}), staged)
    assert told.count("; ") == 3
    assert "truncated_file" in told
    assert "'max_value'" in told
    assert "8 of 100" in told


def test_a_sound_night_goes_on_and_its_files_are_not_read(tmp_path: Path) -> None:
    contract = ContractConfig(max_reject_fraction=0.08, stop_on=())
    check_stops(contract, counters(), [tmp_path / "missing.parquet"], what="tiny")
    check_stops(ContractConfig(max_reject_fraction=0.0), Counters(), [], what="tiny")
