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
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from selectolax.lexbor import LexborHTMLParser

from pipeline.engines.page_parts import number, page_head, percent, style, table, tiles, whole_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pipeline.expectations import Expected, Kind

STYLESHEET = "pages.css"
INDEX = "index.html"
TEXT_PAGE = "text.html"

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
    '<p class="faint">Shares are of the values that are there; the text is all text columns '
    "together, its length before cleaning.</p>"
)

Status = Literal["passed", "failed", "warning"]


@dataclass(frozen=True, slots=True)
class CheckedExpectation:
    """One expectation and what was found; `fraction` is of the values that were looked at."""

    asked: Expected
    passed: bool
    observed: str
    failure_count: int = 0
    fraction: float = 0.0

    @property
    def status(self) -> Status:
        """Only a critical expectation fails; another one warns."""
        if self.passed:
            return "passed"
        return "failed" if self.asked.critical else "warning"


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


def observed_in_words(kind: Kind, found: Mapping[str, Any]) -> str:
    """What was found, in the terms of what was asked; rounded down, so that 100 % means all."""
    observed, unexpected = found.get("observed_value"), found.get("unexpected_percent")
    if kind == "values":
        if unexpected is None:
            return "no values"
        return f"{math.floor(round((100 - unexpected) * 100, 6)) / 100:g} %"
    if observed is None:
        return "no values"
    return percent(observed) if kind == "mean" else number(observed)


def finish_pages(
    folder: Path, report: QualityReport, *, links: Mapping[str, str] | None = None
) -> None:
    """Makes the pages that Great Expectations wrote into `folder` whole without a network.

    `links` are further pages of the index, as name by path, written there by somebody else.
    """
    shutil.rmtree(folder / "static", ignore_errors=True)  # 4 MB of logos and fonts, now unused
    (folder / STYLESHEET).write_text(style(), encoding="utf-8")
    title = f"{report.task} {report.partition}"
    pages = dict(links or {})
    for page in sorted(folder.rglob("*.html"), reverse=True):  # validations, then expectations
        way = page.relative_to(folder)
        if way.as_posix() == INDEX or way.as_posix() in pages:
            continue
        stylesheet = "../" * (len(way.parts) - 1) + STYLESHEET
        html = page.read_text(encoding="utf-8")
        page.write_text(offline_page(html, title=title, stylesheet=stylesheet), encoding="utf-8")
        pages[way.as_posix()] = (
            "Expectation suite" if way.parts[0] == "expectations" else "Full result"
        )
    index = index_page(report, links=pages)
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
        head.inner_html = page_head(f"{title}: data quality", style=link)
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
        table(
            ["Status", "Column", "Expected", "Observed", "-Unexpected rows"],
            map(_expectation_cells, sorted(report.expectations, key=_worst_first)),
            kind="expectations",
        ),
        _LEGEND,
        "<h2>Rejected rows by reason</h2>",
        _reasons(report),
    ]
    return whole_page(f"{title}: data quality", parts)


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
        rejected += f' <small class="faint">{percent(report.rejected / report.rows)}</small>'
    return tiles({"Rows": f"{report.rows:,}", "Rejected rows": rejected, "Expectations met": met})


def _worst_first(expectation: CheckedExpectation) -> int:
    return ("failed", "warning", "passed").index(expectation.status)


def _expectation_cells(expectation: CheckedExpectation) -> list[str]:
    asked, count = expectation.asked, expectation.failure_count
    unexpected = f"{count:,} ({percent(expectation.fraction)})" if count else "0"
    return [
        f'<span class="mark {expectation.status}">{expectation.status}</span>',
        escape(asked.column) if asked.column else '<span class="faint">all rows</span>',
        escape(asked.sentence),
        escape(expectation.observed),
        unexpected if asked.kind == "values" else "",
    ]


def _reasons(report: QualityReport) -> str:
    if not report.by_reason:
        return '<p class="faint">No row was rejected.</p>'
    most_first = sorted(report.by_reason.items(), key=lambda item: (-item[1], item[0]))
    return table(
        ["Reason", "-Rows", "-Share of all rows"],
        ([escape(name), f"{n:,}", percent(n / report.rows)] for name, n in most_first),
        kind="reasons",
    )
