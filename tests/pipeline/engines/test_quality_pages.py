from __future__ import annotations

import re

import pytest

from pipeline.column_rules import OneOf
from pipeline.engines.quality_pages import (
    CheckedExpectation,
    QualityReport,
    finish_pages,
    index_page,
    observed_in_words,
    offline_page,
)
from pipeline.expectations import Expected

# As Great Expectations writes it, in the small.
PAGE = """<!DOCTYPE html>
<html><head><title>Data documentation</title><title></title><meta charset="UTF-8">
<link rel="stylesheet" href="https://cdn.example/bootstrap.min.css">
<style>a { background: url('https://assets.example/logo.png') }</style>
<script src="https://cdn.example/jquery.js"></script></head>
<body><nav><div class="navbar-brand"><a href="../index.html"><img src="//assets.example/l.png"></a>
</div><a href="../index.html">Home</a></nav>
<div id="section-1" class="ge-section" style="color:red" onclick="send()">Overview</div>
<script>showAll()</script><iframe src="https://cta.example"></iframe>
<form action="https://cta.example"><input name="email"></form>
<span>Data asset: None<br> <b>Status:</b></span>
<i class="fas fa-times text-danger"></i> see <a href="HTTPS://docs.example/x">the docs</a>,
<a href=" javascript:send()">run</a>, <a href="#section-1">up</a>
<table><thead hidden><tr><th colspan="2" data-sortable="True">Café &lt;b&gt;</th></tr></thead>
</table>
<footer><p>Stay current <a href="https://news.example?utm_source=x">Subscribe</a></p></footer>
</body></html>"""


def checked(  # what most tests here look at
    column="channel",
    *,
    kind="values",
    critical=True,
    passed=True,
    observed="100 %",
    count=0,
    fraction=0.0,
):
    asked = Expected(
        kind, "channel:allowed", column, column, OneOf(("web",)), "be one of web, app", critical
    )
    return CheckedExpectation(asked, passed, observed, count, fraction)


def report(*expectations, by_reason=None):
    return QualityReport("tickets", "2026-11-28", 1200, by_reason or {}, tuple(expectations))


def cells(page):
    """Texts of a page's table cells, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", r)] for r in rows]


def test_an_offline_page_names_no_other_host_and_runs_nothing():
    page = offline_page(PAGE, title="tickets", stylesheet="../pages.css")
    assert (
        re.findall(r"https?:|//|<script|<iframe|<form|<img|<footer| on\w+=| style=", page, re.I)
        == []
    )
    assert re.findall(r'href="([^"]*)"', page) == ["../pages.css", "../index.html", "#section-1"]
    assert "Subscribe" not in page
    assert "Data asset" not in page


def test_an_offline_page_keeps_words_classes_and_ids():
    page = offline_page(PAGE, title="a < b", stylesheet="pages.css")
    assert page.count("<title>") == 1
    assert "<title>a &lt; b: data quality</title>" in page
    assert '<div id="section-1" class="ge-section">Overview</div>' in page
    assert '<i class="fas fa-times text-danger"></i> see <a>the docs</a>' in page
    assert '<thead hidden=""><tr><th colspan="2">Café &lt;b&gt;</th>' in page


def test_an_offline_page_is_left_as_it_is_by_a_second_round():
    once = offline_page(PAGE, title="t", stylesheet="pages.css")
    assert offline_page(once, title="t", stylesheet="pages.css") == once


def test_the_index_has_a_line_for_each_expectation_the_worst_first():
    page = index_page(
        report(
            checked(),
            checked("<b>", critical=False, passed=False, count=3, fraction=0.0025),
            checked(passed=False, observed="40 %", count=720, fraction=0.6),
            checked(None, kind="rows", observed="1,200"),
        ),
        links={},
    )
    expected = "all values to be one of web, app"
    assert cells(page)[1:5] == [
        ["failed", "channel", expected, "40 %", "720 (60 %)"],
        ["warning", "&lt;b&gt;", expected, "100 %", "3 (0.25 %)"],
        ["passed", "channel", expected, "100 %", "0"],
        ["passed", "all rows", "be one of web, app", "1,200", ""],
    ]
    assert "1 critical expectation is not met. 1 warning:" in page
    assert '<span class="mark failed">broken</span>' in page


def test_a_partition_with_warnings_alone_is_sound():
    sound = report(checked(), checked(critical=False, passed=False))
    assert (sound.sound, sound.count("passed"), sound.count("warning")) == (True, 1, 1)
    page = index_page(sound, links={})
    assert '<span class="mark passed">sound</span>' in page
    assert "<dt>Expectations met</dt><dd>1 of 2</dd>" in page
    assert "No row was rejected." in page


def test_the_index_counts_rejected_rows_by_reason():
    page = index_page(report(by_reason={"missing_id": 2, "wrong_type": 30}), links={})
    assert cells(page)[-2:] == [["wrong_type", "30", "2.5 %"], ["missing_id", "2", "0.1667 %"]]
    assert '<dt>Rejected rows</dt><dd>32 <small class="faint">2.667 %</small></dd>' in page


def test_an_index_without_rows_has_no_share():
    page = index_page(QualityReport("t", "2026-11-28", 0, {}, ()), links={})
    assert "<dt>Rejected rows</dt><dd>0</dd>" in page


def test_finished_pages_link_to_each_other_and_to_one_stylesheet(tmp_path):
    deep = tmp_path / "validations" / "tickets" / "date=2026-11-28" / "run 1"
    for folder, name in {deep: "a.html", tmp_path / "expectations": "tickets.html"}.items():
        folder.mkdir(parents=True)
        (folder / name).write_text(PAGE, encoding="utf-8")
    (tmp_path / "static").mkdir()
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "text.html").write_text("<p>ours</p>", encoding="utf-8")
    finish_pages(tmp_path, report(), links={"text.html": "Text profile"})
    assert (tmp_path / "text.html").read_text(encoding="utf-8") == "<p>ours</p>"
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<a href="([^"]*)">([^<]*)', index) == [
        ("text.html", "Text profile"),
        ("validations/tickets/date=2026-11-28/run%201/a.html", "Full result"),
        ("expectations/tickets.html", "Expectation suite"),
    ]
    assert '<link rel="stylesheet" href="../../../../pages.css">' in (deep / "a.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "expectations", "index.html", "pages.css", "text.html", "validations",
    ]  # fmt: skip
    assert "http" not in index + (tmp_path / "pages.css").read_text()


@pytest.mark.parametrize(
    ("kind", "found", "words"),
    [
        ("rows", {"observed_value": 1200}, "1,200"),
        ("mean", {"observed_value": 0.56}, "56 %"),
        ("mean", {"observed_value": None}, "no values"),
        ("values", {"unexpected_percent": 1.5}, "98.5 %"),
        ("values", {"unexpected_percent": 0.0}, "100 %"),
        ("values", {"unexpected_percent": 0.0001}, "99.99 %"),
        ("values", {"unexpected_percent": None}, "no values"),
    ],
)
def test_observed_in_words(kind, found, words):
    assert observed_in_words(kind, found) == words
