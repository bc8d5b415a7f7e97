from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.sample.faults import CSV_FAULT_RATES, JSONL_FAULT_RATES, draw_faults
from pipeline.sample.text_dirt import CONTROLS, SPECIAL_TOKENS, ZERO_WIDTH, soil

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = "date=2026-11-22"
MOJIBAKE = re.compile("â€™|Ã[\u0080-\u00ff]|Ã©|Ã¼|å|ã")


@pytest.fixture(scope="module")
def ticket_lines(big_day: Path) -> list[list[str]]:
    content = (big_day / f"incoming/tickets/{DAY}/tickets.csv").read_bytes()
    text = content.decode("utf-8", "surrogateescape")
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


@pytest.fixture(scope="module")
def review_lines(big_day: Path) -> list[bytes]:
    content = (big_day / f"incoming/reviews/{DAY}/reviews.jsonl").read_bytes()
    return content.removesuffix(b"\n").split(b"\n")


@pytest.fixture(scope="module")
def texts(big_day: Path, sound_rows: Callable[[Path], list[dict[str, Any]]]) -> list[str]:
    tickets = sound_rows(big_day / f"incoming/tickets/{DAY}/tickets.csv")
    reviews = sound_rows(big_day / f"incoming/reviews/{DAY}/reviews.jsonl")
    return [row["body"] for row in tickets] + [row["text"] for row in reviews]


def test_tickets_have_every_fault_of_csv(ticket_lines: list[list[str]]) -> None:
    assert len(ticket_lines) == 4000
    widths = Counter(map(len, ticket_lines))
    assert set(widths) == {3, 5, 6}
    assert widths[3] >= 3
    assert widths[6] >= 3
    ids = Counter(line[0] for line in ticket_lines)
    assert ids.pop("") >= 3
    assert sum(count > 1 for count in ids.values()) >= 3
    whole = [line for line in ticket_lines if len(line) == 5]
    assert sum(not (line[3] + line[4]).strip(" \t\n\u00a0\u200b") for line in whole) >= 15
    assert sum("\udcff" in line[4] for line in whole) >= 1


def test_reviews_have_every_fault_of_jsonl(review_lines: list[bytes]) -> None:
    assert len(review_lines) == 4000
    bad_bytes, bad_json, rows = 0, 0, []
    for line in review_lines:
        try:
            rows.append(json.loads(line.decode()))
        except UnicodeDecodeError:
            bad_bytes += 1
        except json.JSONDecodeError:
            bad_json += 1
    assert bad_bytes >= 1
    assert bad_json >= 1
    assert {type(row["text"]) for row in rows} == {str, int, type(None)}
    ids = Counter(row["review_id"] for row in rows)
    assert ids.pop("") >= 3
    assert sum(count > 1 for count in ids.values()) >= 3


@pytest.mark.parametrize(
    ("pattern", "at_least"),
    [
        (MOJIBAKE, 60),
        (re.compile("<p>|<br>"), 150),
        (re.compile("<script>"), 50),
        (re.compile("&nbsp;"), 150),
        (re.compile("[" + "".join(ZERO_WIDTH) + "]"), 60),
        (re.compile("\u202e"), 40),
        (re.compile("\x00"), 5),
        (re.compile("|".join(map(re.escape, CONTROLS))), 40),
        (re.compile("\r\n"), 300),
        (re.compile('"[^"]+, [^"]+"'), 100),
        (re.compile("wrote:\n(> )+", re.IGNORECASE), 30),
    ],
    ids=[
        "mojibake", "html", "script", "nbsp", "zero_width", "bidi", "nul", "controls", "crlf",
        "quotes_and_commas", "quoted_replies",
    ],
)  # fmt: skip
def test_texts_have_every_dirt(texts: list[str], pattern: re.Pattern[str], at_least: int) -> None:
    found = sum(bool(pattern.search(text)) for text in texts)
    assert at_least <= found < len(texts) / 5


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_texts_have_every_special_token(texts: list[str], token: str) -> None:
    assert any(token in text for text in texts)


def test_one_text_in_twenty_is_repeated_under_another_id(texts: list[str]) -> None:
    longer = [text for text in texts if len(text) > 60]  # a short one may repeat by chance
    repeated = 1 - len(set(longer)) / len(longer)
    assert 0.03 < repeated < 0.10


def test_texts_are_varied_in_length(texts: list[str]) -> None:
    words = sorted(len(text.split()) for text in texts[: len(texts) // 2])
    assert words[len(words) // 4] < 25
    assert sum(count > 100 for count in words) > len(words) * 0.06
    assert 0.008 < sum(count > 400 for count in words) / len(words) < 0.03


def test_clean_scale_leaves_a_text_alone() -> None:
    assert soil("Hello\nthere", Random(1), scale=0.0) == "Hello\nthere"


@pytest.mark.parametrize("rates", [CSV_FAULT_RATES, JSONL_FAULT_RATES], ids=["csv", "jsonl"])
def test_a_hundred_rows_have_a_fault_and_the_first_row_none(rates: dict[Any, float]) -> None:
    for seed in range(50):
        faults = draw_faults(100, rates, Random(seed), scale=1.0)
        assert len(faults) == 100
        assert faults[0] is None
        assert any(faults)
    assert draw_faults(1, rates, Random(1), scale=1.0) == [None]
