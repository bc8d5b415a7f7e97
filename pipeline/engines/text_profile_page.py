"""The text profile as a page with plots: one file, drawn as SVG, no script, no other host."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pipeline.engines.histogram import histogram
from pipeline.engines.page_parts import percent, table, tiles, whole_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from schemas.profiles import TextStatistics

_MAX_LINES = 20
_NO_TOKENS = "No tokenizer was at hand: tokens are counted once a model is registered."


def write_text_page(document: TextStatistics, path: Path, *, title: str) -> None:
    """Writes the page; it holds numbers alone, never a word of a text."""
    heading = f"{title}: text profile"
    parts = [
        f"<h1>{escape(heading)}</h1>",
        f"<p>{_in_words(document)}</p>",
        _tiles(document),
        '<div class="plots">',
        *_plots(document),
        "</div>",
        "<h2>Languages</h2>",
        _languages(document),
        "<h2>Texts changed by cleaning step</h2>",
        _bars(document.cleaned, whole=document.texts, title="Step", none="No text was changed."),
        "<h2>Rejected rows by reason</h2>",
        _bars(
            document.rejected,
            whole=document.texts + sum(document.rejected.values()),
            title="Reason",
            none="No row was rejected.",
        ),
    ]
    path.write_text(whole_page(heading, parts), encoding="utf-8")


def _in_words(document: TextStatistics) -> str:
    if not document.tokenized:
        return f"Texts are as they are after cleaning. {_NO_TOKENS}"
    of = "all texts" if document.tokenized == document.texts else f"{document.tokenized:,} of them"
    return (
        f"Texts are as they are after cleaning; tokens and windows are counted in {of}, as the "
        "model reads them."
    )


def _tiles(document: TextStatistics) -> str:
    texts, unknown = document.texts, document.unknown_share
    values = {
        "Texts": f"{texts:,}",
        "Repeated": _with_share(texts - document.distinct, texts),
        "Median characters": f"{document.chars.median:,}",
        "Cut at a limit": _with_share(document.truncated, texts),
    }
    if unknown is not None:
        values["Median tokens"] = f"{document.tokens.median:,}"
        values["Unknown tokens"] = percent(unknown)
    return tiles(values)


def _with_share(count: int, whole: int) -> str:
    share = f' <small class="faint">{percent(count / whole)}</small>' if whole else ""
    return f"{count:,}{share}"


def _plots(document: TextStatistics) -> Iterable[str]:
    for name, distribution in (
        ("Characters of a text", document.chars),
        ("Tokens of a text", document.tokens),
        ("Windows of a text", document.windows),
    ):
        if distribution.count:
            yield histogram(distribution, title=name)


def _languages(document: TextStatistics) -> str:
    if not document.languages:
        return '<p class="faint">There is no text.</p>'
    most_first = sorted(document.languages.items(), key=lambda item: (-item[1].texts, item[0]))
    lines = []
    for name, found in most_first[:_MAX_LINES]:
        share = found.texts / document.texts
        line = [escape(name), f"{found.texts:,}", percent(share), _bar(share)]
        if document.tokenized:
            line.append(percent(found.unknown / found.tokens) if found.tokens else "")
        lines.append(line)
    titles = ["Language", "-Texts", "-Share", ""]
    titles += ["-Unknown tokens"] if document.tokenized else []
    more = len(most_first) - _MAX_LINES
    note = f'<p class="faint">{more} more with fewer texts each.</p>' if more > 0 else ""
    return table(titles, lines, kind="bars") + note


def _bars(counts: Mapping[str, int], *, whole: int, title: str, none: str) -> str:
    """A line for each name, the most frequent first."""
    if not counts:
        return f'<p class="faint">{none}</p>'
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = (
        [escape(name), f"{count:,}", percent(count / whole), _bar(count / whole)]
        for name, count in most_first
    )
    return table([title, "-Number", "-Share", ""], lines, kind="bars")


def _bar(share: float) -> str:
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * share:.2f}" height="10"/></svg>'
    )
