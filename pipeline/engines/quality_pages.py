"""Pages about a partition that a browser shows without a network: no script, no other host.

Great Expectations writes pages that load styles, icons and scripts from elsewhere, and an index
that is empty without them. Here its pages get one stylesheet of ours, and the index is replaced.
"""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from selectolax.lexbor import LexborHTMLParser

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STYLESHEET = "pages.css"
INDEX = "index.html"

# What draws, loads or sends; `footer` asks for a subscription, `.navbar-brand` holds a logo.
_DROPPED = (
    "script", "style", "link", "base", "iframe", "frame", "object", "embed", "form", "img",
    "picture", "svg", "audio", "video", "footer", ".navbar-brand", "#ge-cta-footer",
)  # fmt: skip
_KEPT_ATTRIBUTES = frozenset(
    {"id", "class", "href", "colspan", "rowspan", "hidden", "type", "name", "checked"}
)
_ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|//|\\)", re.IGNORECASE)
# A data frame has no name; the page would say so as if something were missing.
_NAMELESS_ASSET = re.compile(r"Data asset: None\s*<br\s*/?>")

_LEGEND = (
    '<p class="faint">X_chars is the length of text column X in characters, text_chars that of all '
    "text columns together; shares of allowed or unique values are of those present.</p>"
)

Status = Literal["passed", "failed", "warning"]


@dataclass(frozen=True, slots=True)
class CheckedExpectation:
    """One expectation and what was found; `fraction` is of the values that were looked at."""

    check: str
    column: str | None
    critical: bool
    passed: bool
    expected: str
    observed: str
    failure_count: int
    fraction: float

    @property
    def status(self) -> Status:
        """Only a critical expectation fails; another one warns."""
        if self.passed:
            return "passed"
        return "failed" if self.critical else "warning"

    @property
    def message(self) -> str:
        """One line for logs and errors."""
        about = f"column {self.column!r}" if self.column else "partition"
        rows = f", {self.failure_count} rows unexpected" if self.failure_count else ""
        return f"{about}: expected {self.expected}, got {self.observed}{rows} ({self.check})"


@dataclass(frozen=True, slots=True)
class QualityReport:
    """What the index tells of one partition: counts only, never a value of a record."""

    task: str
    partition: str
    rows: int
    by_reason: Mapping[str, int]
    expectations: tuple[CheckedExpectation, ...]

    @property
    def sound(self) -> bool:
        """Whether all critical expectations are met."""
        return not self.count("failed")

    @property
    def rejected(self) -> int:
        """Number of rows that would not be scored."""
        return sum(self.by_reason.values())

    def count(self, status: Status) -> int:
        """Number of expectations that ended so."""
        return sum(expectation.status == status for expectation in self.expectations)


def expected_in_words(check: str, settings: Mapping[str, Any]) -> str:
    """What an expectation of `check` with these settings asks for, as the end of "expected …"."""
    kind = check.removeprefix("expect_")
    if kind == "table_row_count_to_be_between":
        least = settings["min_value"]
        return f"at least {_number(least)} {'row' if least == 1 else 'rows'}"
    if kind == "column_to_exist":
        return "the column to exist"
    if kind == "column_mean_to_be_between" and settings["column"] == "row_rejected":
        return f"at most {_percent(settings['max_value'])} of rows to be rejected"
    if kind.startswith("column_values_to_"):
        return f"{_share(settings)} to {_values_in_words(kind, settings)}"
    return kind.replace("_", " ")


def observed_in_words(check: str, found: Mapping[str, Any], *, passed: bool) -> str:
    """What was found, in the same terms; a share is rounded down, so that 100 % means all."""
    match check.removeprefix("expect_"):
        case "column_to_exist":
            return "it does" if passed else "it does not"
        case "column_mean_to_be_between" if found.get("observed_value") is not None:
            return _percent(found["observed_value"])
        case _ if found.get("observed_value") is not None:
            return _number(found["observed_value"])
        case _ if found.get("unexpected_percent") is not None:
            hundredths = math.floor(round((100 - found["unexpected_percent"]) * 100, 6))
            return f"{hundredths / 100:g} %"
    return "no values"


def finish_pages(folder: Path, report: QualityReport) -> None:
    """Makes the pages that Great Expectations wrote into `folder` whole without a network."""
    shutil.rmtree(folder / "static", ignore_errors=True)  # 4 MB of logos and fonts, now unused
    (folder / STYLESHEET).write_text(_style(), encoding="utf-8")
    title = f"{report.task} {report.partition}"
    links: dict[str, str] = {}
    for page in sorted(folder.rglob("*.html"), reverse=True):  # validations, then expectations
        way = page.relative_to(folder)
        if way.as_posix() == INDEX:
            continue
        stylesheet = "../" * (len(way.parts) - 1) + STYLESHEET
        html = page.read_text(encoding="utf-8")
        page.write_text(offline_page(html, title=title, stylesheet=stylesheet), encoding="utf-8")
        links[way.as_posix()] = (
            "Expectation suite" if way.parts[0] == "expectations" else "Full result"
        )
    index = index_page(report, links=links)
    (folder / INDEX).write_text(index, encoding="utf-8")


def offline_page(html: str, *, title: str, stylesheet: str) -> str:
    """A page of Great Expectations without scripts and other hosts, in the style of `stylesheet`.

    Its words, tables and links inside the site stay; a link that leads elsewhere becomes text.
    """
    tree = LexborHTMLParser(_NAMELESS_ASSET.sub("", html))
    for selector in _DROPPED:
        # One at a time: a node inside one that is gone must not be touched again.
        while node := tree.css_first(selector):
            node.decompose()
    for node in tree.css("*"):
        for name, value in node.attributes.items():
            is_elsewhere = name == "href" and _ELSEWHERE.match(value or "")
            if name not in _KEPT_ATTRIBUTES or is_elsewhere:
                del node.attrs[name]
    head = tree.css_first("head")
    if head is not None:
        link = f'<link rel="stylesheet" href="{escape(stylesheet)}">'
        head.inner_html = _head(title, style=link)
    return tree.html or ""


def index_page(report: QualityReport, *, links: Mapping[str, str]) -> str:
    """The first page: verdict, counts, a line per expectation, rejected rows by reason.

    `links` are names of further pages by their paths, relative to this one.
    """
    title = f"{report.task} {report.partition}"
    verdict, mark = ("sound", "passed") if report.sound else ("broken", "failed")
    parts = [
        f'<h1>{escape(title)} <span class="mark {mark}">{verdict}</span></h1>',
        f"<p>{_verdict_in_words(report)}</p>",
        '<p class="links">',
        *(f'<a href="{quote(path, safe="/=")}">{escape(name)}</a>' for path, name in links.items()),
        "</p>",
        _tiles(report),
        "<h2>Expectations</h2>",
        _table(
            ["Status", "Column", "Expected", "Observed", "-Unexpected rows"],
            map(_expectation_cells, sorted(report.expectations, key=_worst_first)),
        ),
        _LEGEND,
        "<h2>Rejected rows by reason</h2>",
        _reasons(report),
    ]
    head = _head(title, style=f"<style>\n{_style()}</style>")
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _head(title: str, *, style: str) -> str:
    return (
        '\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: data quality</title>\n{style}\n"
    )


def _style() -> str:
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def _verdict_in_words(report: QualityReport) -> str:
    failed, warnings = report.count("failed"), report.count("warning")
    words = (
        "All critical expectations are met."
        if report.sound
        else f"{failed} critical {'expectation is' if failed == 1 else 'expectations are'} not met."
    )
    if warnings:
        noun = "warning" if warnings == 1 else "warnings"
        words += f" {warnings} {noun}: worth a look, no stop (the full result says failed)."
    return words


def _tiles(report: QualityReport) -> str:
    met = f"{report.count('passed')} of {len(report.expectations)}"
    rejected = f"{report.rejected:,}"
    if report.rows:
        rejected += f' <small class="faint">{_percent(report.rejected / report.rows)}</small>'
    tiles = {"Rows": f"{report.rows:,}", "Rejected rows": rejected, "Expectations met": met}
    inner = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())
    return f'<dl class="tiles">{inner}</dl>'


def _worst_first(expectation: CheckedExpectation) -> int:
    return ("failed", "warning", "passed").index(expectation.status)


def _expectation_cells(expectation: CheckedExpectation) -> list[str]:
    count = expectation.failure_count
    unexpected = f"{count:,} ({_percent(expectation.fraction)})" if count else "0"
    counts_values = expectation.check.startswith("expect_column_values_")
    return [
        f'<span class="mark {expectation.status}">{expectation.status}</span>',
        escape(expectation.column) if expectation.column else '<span class="faint">all rows</span>',
        escape(expectation.expected),
        escape(expectation.observed),
        unexpected if counts_values else "",
    ]


def _reasons(report: QualityReport) -> str:
    if not report.by_reason:
        return '<p class="faint">No row was rejected.</p>'
    most_first = sorted(report.by_reason.items(), key=lambda item: (-item[1], item[0]))
    return _table(
        ["Reason", "-Rows", "-Share of all rows"],
        ([escape(name), f"{n:,}", _percent(n / report.rows)] for name, n in most_first),
        kind="reasons",
    )


def _table(titles: list[str], lines: Iterable[list[str]], *, kind: str = "expectations") -> str:
    """Cells are HTML already; a column whose title begins with `-` holds numbers."""
    places = [' class="number"' if title.startswith("-") else "" for title in titles]
    names = [title.removeprefix("-") for title in titles]
    head = "".join(f"<th{place}>{name}</th>" for place, name in zip(places, names, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(f'<td{p}>{cell}</td>' for p, cell in zip(places, line, strict=True))}</tr>"
        for line in lines
    )
    return (
        f'<table class="{kind}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )


def _values_in_words(kind: str, settings: Mapping[str, Any]) -> str:
    match kind.removeprefix("column_values_to_"):
        case "not_be_null":
            return "be present"
        case "be_in_set":
            return f"be one of {', '.join(map(str, settings['value_set']))}"
        case "be_between":
            return f"be from {_number(settings['min_value'])} to {_number(settings['max_value'])}"
        case other:
            return other.replace("_", " ")


def _share(settings: Mapping[str, Any]) -> str:
    mostly = settings.get("mostly", 1.0)
    return "all values" if mostly >= 1 else f"at least {_percent(mostly)} of values"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.4g} %"


def _number(value: Any) -> str:
    return f"{value:,g}" if isinstance(value, float) and value < 1e6 else f"{value:,.0f}"
