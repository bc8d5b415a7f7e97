from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

# Importing Great Expectations alone takes five seconds.
pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path):
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


def test_a_sound_range_of_dates(home):
    code, result, _ = validate(
        home, "--date", "2026-11-27", "--through", "2026-11-28", "contract.max_reject_fraction=0.5"
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
    assert Path(second["page"]) == home / "quality/tickets/date=2026-11-28/index.html"
    page = Path(second["page"]).read_text(encoding="utf-8")
    assert '<span class="mark passed">sound</span>' in page
    assert '<tr><td>missing_text</td><td class="number">1</td>' in page
    assert "hush" not in page


def test_all_dates_are_checked_before_the_error(home):
    code, result, output = validate(home, "--date", "2026-11-27", "--through", "2026-11-30")
    assert (code, result) == (3, None)
    assert "2026-11-28: 4 of 24 rows rejected (16.7%), at most 10.0%" in output
    assert "duplicate_id 1 (such as 5)" in output
    assert "malformed_row 1 (such as incoming/tickets/date=2026-11-28/a.csv:21)" in output
    assert "2026-11-29: got 0 rows, expected at least 1; set contract.min_rows=0" in output
    assert "2026-11-30: no input for date 2026-11-30" in output
    assert "secret" not in output
    pages = sorted(path.name for path in (home / "quality" / "tickets").iterdir())
    assert pages == ["date=2026-11-27", "date=2026-11-28", "date=2026-11-29"]
    broken = home / "quality/tickets/date=2026-11-28/index.html"
    assert '<span class="mark failed">broken</span>' in broken.read_text(encoding="utf-8")


def test_a_quiet_day_may_be_allowed(home):
    code, result, _ = validate(home, "--date", "2026-11-29", "contract.min_rows=0")
    assert code == 0
    assert result["dates"]["2026-11-29"]["rows"] == 0
