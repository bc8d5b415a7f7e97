from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

# Importing Great Expectations alone takes five seconds.
pytestmark = pytest.mark.slow


@pytest.fixture
def nights(tmp_path):
    for day, rows in {"2026-11-27": 20, "2026-11-28": 20, "2026-11-29": 0}.items():
        folder = tmp_path / "incoming" / "tickets" / f"date={day}"
        folder.mkdir(parents=True)
        lines = ["ticket_id,subject,body,channel", *(f"{n},hush,secret,web" for n in range(rows))]
        if day == "2026-11-28":
            lines += ["5,again,again,web", "x,y", ",s,b,web", "77,,,web"]
        (folder / "a.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def validate(home, *arguments):
    from jobs.validate import command

    result = home / "result.json"
    outcome = CliRunner().invoke(
        command, ["tickets", *arguments, "--home", str(home), "--result", str(result)]
    )
    content = json.loads(result.read_text()) if result.exists() else None
    return outcome.exit_code, content, outcome.output


def test_a_sound_range_of_dates(nights):
    code, result, _ = validate(
        nights,
        "--date",
        "2026-11-27",
        "--through",
        "2026-11-28",
        "contract.max_reject_fraction=0.5",
    )
    assert code == 0
    first, second = result["dates"]["2026-11-27"], result["dates"]["2026-11-28"]
    assert (first["rows"], first["rejected"], first["by_reason"]) == (20, 0, {})
    assert (second["rows"], second["rejected"]) == (24, 4)
    assert second["by_reason"] == {
        "duplicate_id": 1,
        "malformed_row": 1,
        "missing_id": 1,
        "missing_text": 1,
    }
    assert Path(second["page"]) == nights / "quality/tickets/date=2026-11-28/index.html"
    page = Path(second["page"]).read_text(encoding="utf-8")
    assert '<span class="mark passed">sound</span>' in page
    assert '<tr><td>missing_text</td><td class="number">1</td>' in page
    assert '<a href="text.html">Text profile</a>' in page
    assert "hush" not in page
    text = Path(second["page"]).with_name("text.html").read_text(encoding="utf-8")
    assert "<title>tickets 2026-11-28: text profile</title>" in text
    assert "No tokenizer was at hand" in text
    assert '<td class="number">4</td>' not in text.partition("Rejected rows")[0]
    assert "hush" not in text


def test_all_dates_are_checked_before_the_error(nights):
    code, result, output = validate(nights, "--date", "2026-11-27", "--through", "2026-11-30")
    assert (code, result) == (3, None)
    assert "2026-11-28: max_reject_fraction: expected at most 10 % of rows to be rejected" in output
    assert "got 16.67 %: 4 of 24 rows rejected, 1 duplicate_id (such as 5)" in output
    assert "1 malformed_row (such as incoming/tickets/date=2026-11-28/a.csv:21)" in output
    assert "2026-11-29: min_rows: expected at least 1 row, got 0; set contract.min_rows=0" in output
    assert "2026-11-30: no input for date 2026-11-30" in output
    assert "secret" not in output
    pages = sorted(path.name for path in (nights / "quality" / "tickets").iterdir())
    assert pages == ["date=2026-11-27", "date=2026-11-28", "date=2026-11-29"]
    broken = nights / "quality/tickets/date=2026-11-28/index.html"
    assert '<span class="mark failed">broken</span>' in broken.read_text(encoding="utf-8")


def test_a_quiet_day_may_be_allowed(nights):
    code, result, _ = validate(nights, "--date", "2026-11-29", "contract.min_rows=0")
    assert code == 0
    assert result["dates"]["2026-11-29"]["rows"] == 0


def test_all_problems_of_a_date_are_one_message_with_rule_count_and_three_examples(nights):
    code, _, output = validate(
        nights, "--date", "2026-11-27", "contract.columns.subject.allowed=[loud]",
        "contract.columns.channel.allowed=[fax]", "contract.columns.channel.severity=stop",
    )  # fmt: skip
    assert code == 3
    (line,) = [line for line in output.splitlines() if "DataContractError" in line]
    assert (
        "column 'subject', allowed: expected at least 90 % of values to be one of loud, got 0 %, "
        "20 rows are not so (such as 0, 1, 2)"
    ) in line
    assert (
        "column 'channel', allowed: expected all values to be one of fax, got 0 %, "
        "20 rows are not so (such as 0, 1, 2)"
    ) in line
    assert "max_reject_fraction: " in line


def test_a_reason_that_stops_the_night_fails_one_row(nights):
    code, _, output = validate(
        nights, "--date", "2026-11-28", "contract.max_reject_fraction=0.5",
        "contract.stop_on=[malformed_row]",
    )  # fmt: skip
    assert code == 3
    assert (
        "malformed_row: expected all rows to be free of malformed_row, got 95.83 %, 1 row is not "
        "so (such as incoming/tickets/date=2026-11-28/a.csv:21)"
    ) in output


def test_what_cleaning_empties_counts_as_rejected(nights):
    night = nights / "incoming/tickets/date=2026-11-27/a.csv"
    night.write_text(night.read_text() + "99,,<p></p>,web\n")
    code, result, _ = validate(nights, "--date", "2026-11-27")
    assert code == 0
    assert result["dates"]["2026-11-27"]["by_reason"] == {"empty_after_cleaning": 1}


def test_a_date_is_compared_with_the_dates_before_it(nights):
    incoming = nights / "incoming/tickets"
    for day, rows in {"2026-11-24": 20, "2026-11-25": 22, "2026-11-26": 60}.items():
        folder = incoming / f"date={day}"
        folder.mkdir()
        lines = ["ticket_id,subject,body,channel"]
        lines += [f"{n},hush,secret,{'web' if day != '2026-11-26' else ''}" for n in range(rows)]
        (folder / "a.csv").write_text("\n".join(lines) + "\n")
    rule = ["contract.drift.min_partitions=2", "contract.drift.partitions=2"]
    code, result, output = validate(
        nights, "--date", "2026-11-24", "--through", "2026-11-26", *rule
    )
    assert code == 0
    counts = [day["warnings"] for day in result["dates"].values()]
    assert counts == [0, 0, 2]  # one date before the 25th says nothing
    assert "drift of volume: expected 10 to 42 rows after the 2 dates before, got 60" in output
    assert (
        "column 'channel', drift of missing values: expected 90 to 100 % of values to be present "
        "after the 2 dates before, got 0 %"
    ) in output
    stop = [*rule, "contract.drift.severity=stop"]
    code, _, output = validate(nights, "--date", "2026-11-26", *stop)
    assert code == 3
    assert "got 60; look whether files are missing or doubled" in output
    # A date in the middle again: what came after it does not count.
    assert validate(nights, "--date", "2026-11-25", *stop)[0] == 0


def test_an_encoding_that_was_guessed_is_a_warning(nights):
    night = nights / "incoming/tickets/date=2026-11-27/a.csv"
    rows = "".join(
        f"{n},Gr\u00fc\u00dfe,sch\u00f6ne Gr\u00fc\u00dfe aus K\u00f6ln,web\n" for n in range(30)
    )
    night.write_bytes(("ticket_id,subject,body,channel\n" + rows).encode("cp1252"))
    code, result, output = validate(nights, "--date", "2026-11-27")
    assert (code, result["dates"]["2026-11-27"]["rejected"]) == (0, 0)
    assert "a.csv is not UTF-8" in output


def test_tokens_are_counted_with_the_tokenizer_of_the_model_that_scores(
    tiny_home, write_night, nightmill
):
    write_night(tiny_home, "2026-11-28", rows=30)
    outcome = nightmill("validate", "tiny", "--date", "2026-11-28", home=tiny_home)
    assert outcome.exit_code == 0, outcome.output
    page = tiny_home.root / "quality/tiny/date=2026-11-28/text.html"
    assert "Unknown tokens" in page.read_text(encoding="utf-8")
