from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from jobs.sample import command
from pipeline.sample.formats import count_rows

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--days", "2", "--rows", "10", "--history-rows", "12", "--seed", "3"]


def test_sample_writes_files_and_its_result(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    arguments = ["--home", str(tmp_path / "home"), "--result", str(result), *SMALL]
    outcome = CliRunner().invoke(command, [*arguments, "--first-date", "2027-01-31"])
    assert outcome.exit_code == 0
    document = json.loads(result.read_text())
    assert {key: document[key] for key in ("first_date", "last_date", "seed")} == {
        "first_date": "2027-01-31",
        "last_date": "2027-02-01",
        "seed": 3,
    }
    assert document["folders"]["labelled/reviews"]["rows"] == 12
    assert document["folders"]["incoming/tickets/date=2027-02-01"]["rows"] == 10
    assert set(document["folders"]) == {
        f"{folder}/{task}" for task in ("tickets", "reviews") for folder in ("labelled", "outcomes")
    } | {
        f"incoming/{task}/date={day}"
        for task in ("tickets", "reviews")
        for day in ("2027-01-31", "2027-02-01")
    }
    tickets = tmp_path / "home/incoming/tickets/date=2027-01-31/tickets.csv"
    assert count_rows(tickets) == 10


def test_a_bad_date_is_a_config_error_without_a_result(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    arguments = ["--home", str(tmp_path), "--result", str(result), "--first-date", "22.11.2026"]
    outcome = CliRunner().invoke(command, arguments)
    assert outcome.exit_code == 2
    assert not result.exists()


def test_no_rows_is_a_config_error(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(command, ["--home", str(tmp_path), "--rows", "0"])
    assert outcome.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_options_and_shows_an_example() -> None:
    outcome = CliRunner().invoke(command, ["--help"])
    assert outcome.exit_code == 0
    for option in ("--first-date", "--days", "--rows", "--history-rows", "--seed", "--home"):
        assert option in outcome.output
    assert "nightmill sample --days 30 --rows 1000 --seed 11" in outcome.output
