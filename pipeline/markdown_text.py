"""Markdown to text: what its signs say is kept, the signs go.

Only whole constructions count, and none reaches over a line end: `snake_case`, `2 * 3 * 4`, `#1`
and a lone `*` are ordinary text. Every repetition is bounded, so the cost is linear.
"""

from __future__ import annotations

import re

from pipeline.pii import PLACEHOLDERS

_ANY_SIGN = re.compile(r"[*_`~#|>\[]|(?:^|\n)\s{0,3}(?:[+•]\s|[=-]{3})|<https?:")

_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[ \t]{0,3}[\w+.#-]{0,20}[ \t]{0,3}$\n?", re.MULTILINE)
_RULE = re.compile(
    r"^[ \t]{0,3}(?:={3,}+|-{3,}+|\*{3,}+|_{3,}+|(?:\* ){2,40}\*|(?:- ){2,40}-)[ \t]*$\n?",
    re.MULTILINE,
)
_HEADING = re.compile(
    r"^[ \t]{0,3}#{1,6}[ \t]++([^\n]*?)(?:[ \t]{1,3}#{1,6})?[ \t]{0,3}$", re.MULTILINE
)
_BULLET = re.compile(r"^([ \t]{0,40})[*+•][ \t]+(?=\S)(?![*+•]\s)", re.MULTILINE)
_TASK = re.compile(r"^([ \t]{0,40}- )\[[ xX]\][ \t]+", re.MULTILINE)
_BLOCK_QUOTE = re.compile(r"^(?:[ \t]{0,3}>(?=[\s>]|[^\W\d_]|$)[ \t]?)+", re.MULTILINE)
_TABLE_RULE = re.compile(r"\|?\s{0,9}:?-{2,}+:?\s{0,9}(?:\|\s{0,9}:?-{2,}+:?\s{0,9})*+\|?")

_MASK_NAMES = "|".join(re.escape(mask[1:-1]) for mask in PLACEHOLDERS)
_TARGET = r"\([ \t]*<?(?P<url>[^\s()<>]{1,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200})?)>?"
_TITLE = r"(?:[ \t]+(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'))?[ \t]*\)"
_LINK = re.compile(rf"!?\[(?!(?:{_MASK_NAMES})\])(?P<label>[^\[\]\n]{{0,500}})\]{_TARGET}{_TITLE}")
_URL_SIGN = re.compile(r"[./#:]")
_AUTOLINK = re.compile(r"<(https?://[^\s<>]{1,2000})>")
_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]{1,1000})(?<!`)\1(?!`)")
_EMPHASIS = tuple(
    re.compile(
        rf"(?<![\w{sign}])(?P<sign>{sign}{{{count}}})(?=[^\s{sign}])"
        rf"(?P<text>[^\n{inner}]{{1,300}}?)(?<=[^\s{sign}])(?P=sign)(?![\w{sign}])"
    )
    for sign, count, inner in (
        (r"\*", "3", r"\*"), (r"\*", "2", r""), (r"\*", "1", r"\*"),
        ("_", "2", ""), ("_", "1", ""), ("~", "2", "~"),
    )
)  # fmt: skip


def markdown_to_text(text: str) -> str:
    """The text without markdown: links as their words, images as their descriptions.

    Bullets of every kind become `- `, table rows stay on lines with commas between their cells.
    """
    if not _ANY_SIGN.search(text):
        return text
    text = _FENCE.sub("", text)
    if "|" in text and "--" in text:
        text = _without_tables(text)
    text = _BLOCK_QUOTE.sub("", _RULE.sub("", text))
    text = _HEADING.sub(r"\1", text)
    text = _TASK.sub(r"\1", _BULLET.sub(r"\1- ", text))
    return _inline(text)


def _inline(text: str) -> str:
    if "](" in text:
        text = _LINK.sub(_words_of_link, text)  # images first, so that a linked one is a link now
        text = _LINK.sub(_words_of_link, text)
    text = _AUTOLINK.sub(r"\1", text)
    if "`" in text:
        text = _CODE.sub(r"\2", text)
    if "*" in text or "_" in text or "~~" in text:
        for pattern in _EMPHASIS:
            text = pattern.sub(r"\g<text>", text)
    return text


def _words_of_link(match: re.Match[str]) -> str:
    if not _URL_SIGN.search(match["url"]):  # `f[x](y)` is code
        return match[0]
    return match["label"] or match["url"]


def _without_tables(text: str) -> str:
    """Rows around a line of dashes as cells with commas between them."""
    lines = text.split("\n")
    in_table = False
    result: list[str] = []
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if _is_table_rule(following) and "|" in line:
            in_table = True
        if in_table and _is_table_rule(line):
            continue
        in_table = in_table and "|" in line
        result.append(_row(line) if in_table else line)
    return "\n".join(result)


def _is_table_rule(line: str) -> bool:
    return "|" in line and "--" in line and _TABLE_RULE.fullmatch(line.strip()) is not None


def _row(line: str) -> str:
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return ", ".join(cell.strip() for cell in cells)
