"""Quarantine files read back: rows in order, counts by key, names for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.quarantined import WITHOUT_RAW, Tally, quarantined_rows, row_name
from pipeline.rows import Rejected
from pipeline.staging import write_parquet
from pipeline.tables import quarantine_table
from schemas.errors import ArtifactError
from schemas.reasons import Reason, Stage
from schemas.task import QuarantineConfig

if TYPE_CHECKING:
    from pathlib import Path


def rejected(number: int, name: str | None = None) -> Rejected:
    reason = Reason.MISSING_TEXT if number % 2 else Reason.WRONG_TYPE
    return Rejected(name, "in/a.csv", number, Stage.VALIDATE, reason, "why", b"raw %d" % number)


def written(folder: Path, *parts: list[Rejected]) -> list[Path]:
    files = [folder / f"part-{index:05d}.parquet" for index in range(len(parts))]
    for file, rows in zip(files, parts, strict=True):
        table = quarantine_table(rows, policy=QuarantineConfig(), contract_version="c")
        write_parquet(table, file)
    return files


def test_rows_come_in_the_order_of_files_and_rows(tmp_path: Path) -> None:
    files = written(tmp_path, [rejected(n) for n in range(300)], [], [rejected(300, "t")])
    rows = list(quarantined_rows(files))
    assert [row["source_row"] for row in rows] == list(range(301))
    assert rows[7]["raw"] == b"raw 7"
    assert rows[300]["record_id"] == "t"


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    rows = quarantined_rows(written(tmp_path, [rejected(1)]), columns=WITHOUT_RAW)
    assert list(next(rows)) == list(WITHOUT_RAW)


def test_a_row_is_called_by_its_id_else_by_its_place() -> None:
    row = {"record_id": None, "source_file": "in/a.csv", "source_row": 7}
    assert row_name(row) == "in/a.csv:7"
    assert row_name(row | {"record_id": "t1"}) == "t1"
    assert row_name(row | {"record_id": "t\x1b1" + "x" * 500}) == "t\\x1b1" + "x" * 74 + "…"


def test_a_tally_counts_all_and_keeps_the_first_few(tmp_path: Path) -> None:
    tally = Tally(2)
    files = written(tmp_path, [rejected(n, f"t{n}") for n in range(7)])
    for row in quarantined_rows(files):
        tally.add((row["reason"],), row)
    assert tally.rows == {("wrong_type",): 4, ("missing_text",): 3}
    assert tally.such_as(("wrong_type",)) == " (such as t0, t2)"
    assert tally.such_as(("missing_id",)) == ""


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, [rejected(1)])[0]
    file.write_bytes(file.read_bytes()[:-1])
    for path in (file, tmp_path / "gone.parquet"):
        with pytest.raises(ArtifactError, match=f"{path.name} is missing or damaged"):
            list(quarantined_rows([path]))
