"""A task file for data nobody has described yet."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.propose import propose_task
from schemas.errors import ConfigError, DataContractError
from schemas.load import parse_task

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def tickets(count: int = 20) -> list[dict[str, str]]:
    return [
        {
            "Ticket_ID": f"t{number}",
            "body": "the parcel is late " * (1 + number % 3),
            "Queue": ("shipping", "billing")[number % 4 == 0],
            "tags": ("late|parcel", "late", "parcel", "")[number % 4],
        }
        for number in range(count)
    ]


def propose(path: Path, home: Home, *labels: str, text: tuple[str, ...] = ("body",)) -> Any:
    return propose_task("mine", path, text=text, labels=labels, home=home)


def test_a_proposal_is_a_valid_task(tmp_path: Path, home: Home) -> None:
    path = write_csv(tmp_path / "tickets.csv", tickets())
    proposal = propose(path, home, "Queue", "tags")
    task = parse_task(proposal.task, source="proposal")
    assert (task.data.id_column, task.data.text_columns) == ("Ticket_ID", ("body",))
    assert task.data.incoming == task.data.labelled == str(path)
    assert task.heads["queue"].column == "Queue"
    assert (task.heads["queue"].kind, task.heads["queue"].labels) == (
        "single",
        ("billing", "shipping"),
    )
    assert (task.heads["tags"].kind, task.heads["tags"].labels) == ("multi", ("late", "parcel"))
    assert task.heads["tags"].separator == "|"
    assert (task.window.max_tokens, task.window.stride_tokens) == (64, 16)
    assert task.schedule is None
    assert "20 rows in tickets.csv" in proposal.seen
    assert "head queue: single, 2 labels, from 'shipping' (15) to 'billing' (5)" in proposal.seen


def test_label_lists_of_jsonl_are_multi_heads(tmp_path: Path, home: Home) -> None:
    path = tmp_path / "reviews.jsonl"
    lines = [
        {"text": f"review {n}", "topics": [["price"], ["price", "service"], []][n % 3]}
        for n in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    proposal = propose(path, home, "topics", text=("text",))
    head = proposal.task["heads"]["topics"]
    assert head == {"kind": "multi", "column": "topics", "labels": ["price", "service"]}
    assert "id_column" not in proposal.task["data"]
    assert "ids: none found, file and row are used" in proposal.seen


def test_a_separator_inside_ordinary_names_makes_no_multi_head(tmp_path: Path, home: Home) -> None:
    rows = [{"body": "x", "kind": ("A; large", "B; small")[n % 2]} for n in range(10)]
    head = propose(write_csv(tmp_path / "a.csv", rows), home, "kind").task["heads"]["kind"]
    assert (head["kind"], head["labels"]) == ("single", ["A; large", "B; small"])


def test_an_id_column_with_repeats_is_none(tmp_path: Path, home: Home) -> None:
    rows = [{"id": str(n // 2), "body": "x", "kind": "ab"[n % 2]} for n in range(10)]
    proposal = propose(write_csv(tmp_path / "a.csv", rows), home, "kind")
    assert "id_column" not in proposal.task["data"]


@pytest.mark.parametrize(
    ("name", "head"), [("Issue Type", "issue_type"), ("2nd", "head_2nd"), ("naïve", "na_ve")]
)
def test_a_head_name_is_made_of_any_column(
    tmp_path: Path, home: Home, name: str, head: str
) -> None:
    rows = [{"body": "x", name: "ab"[n % 2]} for n in range(10)]
    proposal = propose(write_csv(tmp_path / "a.csv", rows), home, name)
    assert list(proposal.task["heads"]) == [head]
    assert parse_task(proposal.task, source="p").heads[head].column == name


@pytest.mark.parametrize(("chars", "size"), [(100, 64), (400, 128), (2000, 256)])
def test_the_window_holds_nearly_all_texts(
    tmp_path: Path, home: Home, chars: int, size: int
) -> None:
    rows = [{"body": "x" * chars, "kind": "ab"[n % 2]} for n in range(10)]
    proposal = propose(write_csv(tmp_path / "a.csv", rows), home, "kind")
    assert proposal.task["window"] == {"max_tokens": size, "stride_tokens": size // 4}


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        (("bodi",), ("Queue",), r"no column 'bodi' \(did you mean 'body'\?\); it has Ticket"),
        (("body",), ("queue",), r"has no column 'queue' \(did you mean 'Queue'\?\)"),
        (("body",), ("body",), "column 'body' cannot be both text and label"),
        (("body",), ("Ticket_ID",), "'Ticket_ID' has 20 distinct values in 20 rows; that is no l"),
        (("body",), ("Same",), "'Same' has 1 distinct values, need two"),
        (("body",), ("Empty",), "'Empty' has 0 distinct values, need two"),
    ],
)
def test_a_column_that_cannot_be_is_named(
    tmp_path: Path, home: Home, text: tuple[str, ...], labels: tuple[str, ...], message: str
) -> None:
    rows = [row | {"Same": "x", "Empty": ""} for row in tickets()]
    path = write_csv(tmp_path / "a.csv", rows)
    with pytest.raises((ConfigError, DataContractError), match=message):
        propose(path, home, *labels, text=text)


def test_two_columns_that_make_one_head_name_are_refused(tmp_path: Path, home: Home) -> None:
    rows = [{"body": "x", "a b": "xy"[n % 2], "a-b": "uv"[n % 2]} for n in range(10)]
    with pytest.raises(ConfigError, match="label columns 'a b' and 'a-b' would both be head 'a_b'"):
        propose(write_csv(tmp_path / "a.csv", rows), home, "a b", "a-b")


def test_a_file_without_rows_is_a_contract_error(tmp_path: Path, home: Home) -> None:
    (tmp_path / "a.csv").write_text("body,kind\n")
    with pytest.raises(DataContractError, match=r"a\.csv: no row could be read"):
        propose(tmp_path / "a.csv", home, "kind")


def test_a_guessed_encoding_is_told_and_becomes_a_declared_one(tmp_path, home) -> None:
    rows = [{**row, "body": f"Paket für Köln, Nr. {n}"} for n, row in enumerate(tickets())]
    path = write_csv(tmp_path / "alt.csv", rows)
    path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
    proposal = propose_task("alt", path, text=["body"], labels=["Queue"], home=home)
    assert proposal.task["data"]["encoding"] == "cp1252"
    assert "read as cp1252, which is a guess" in proposal.seen[0]
    assert parse_task(proposal.task, source="alt").data.encoding == "cp1252"
    assert list(home.root.rglob("*.csv")) == []
