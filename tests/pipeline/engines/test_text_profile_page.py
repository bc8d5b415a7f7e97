from __future__ import annotations

import re

from pipeline.engines.text_profile_page import write_text_page
from pipeline.length_histogram import LengthHistogram
from schemas.profiles import Distribution, LanguageStatistics, TextStatistics


def lengths(*values):
    found = LengthHistogram()
    for value in values:
        found.add(value)
    return found.distribution()


FULL = TextStatistics(
    texts=4,
    distinct=3,
    truncated=1,
    chars=lengths(10, 20, 500, 500),
    tokenized=4,
    tokens=lengths(5, 8, 120, 120),
    windows=lengths(1, 1, 2, 2),
    languages={
        "de": LanguageStatistics(texts=1, tokens=53, unknown=5),
        "en": LanguageStatistics(texts=3, tokens=200, unknown=0),
    },
    cleaned={"html": 1, "whitespace": 3},
    rejected={"invalid_json": 1},
)


def page(tmp_path, document):
    path = tmp_path / "text.html"
    write_text_page(document, path, title="a < b 2026-11-28")
    return path.read_text(encoding="utf-8")


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))


def test_a_page_stands_alone_and_runs_nothing(tmp_path):
    text = page(tmp_path, FULL)
    assert re.findall(r"https?:|<script|<img|<link|src=|url\(|@import| on\w+=", text) == []
    assert "<title>a &lt; b 2026-11-28: text profile</title>" in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_shows_numbers_plots_and_shares(tmp_path):
    text = page(tmp_path, FULL)
    assert text.count('<svg class="plot"') == 3
    told = words(text)
    for shown in (
        "Texts 4 ", "Repeated 1 25 %", "Cut at a limit 1 25 %", "Unknown tokens 1.976 %",
        "counted in all texts", "en 3 75 % 0 %", "de 1 25 % 9.434 %", "whitespace 3 75 %",
        "html 1 25 %", "invalid_json 1 20 %",
    ):  # fmt: skip
        assert shown in told
    assert told.index("en 3") < told.index("de 1")


def test_without_tokens_the_page_says_so(tmp_path):
    document = FULL.model_copy(
        update={"tokenized": 0, "tokens": Distribution(), "windows": Distribution(),
                "languages": {"en": LanguageStatistics(texts=4)}}
    )  # fmt: skip
    text = page(tmp_path, document)
    assert text.count('<svg class="plot"') == 1
    assert "No tokenizer was at hand" in text
    assert "Unknown tokens </dt>" not in text
    sample = page(tmp_path, FULL.model_copy(update={"tokenized": 2}))
    assert "counted in 2 of them" in sample


def test_a_partition_without_texts_has_a_page(tmp_path):
    told = words(page(tmp_path, TextStatistics()))
    assert "Texts 0" in told
    assert "There is no text." in told
    assert "No row was rejected." in told


def test_only_the_most_frequent_languages_have_a_line(tmp_path):
    many = {f"l{n:02}": LanguageStatistics(texts=n + 1) for n in range(25)}
    document = TextStatistics(texts=325, distinct=325, chars=lengths(5), languages=many)
    told = words(page(tmp_path, document))
    assert "l24 25" in told
    assert "l04 5" not in told
    assert "5 more with fewer texts each." in told
