"""HTML to text: tags become line breaks or nothing, entities become characters.

An HTML parser believes every `<`: an unclosed tag eats the rest of the text, and 200,000 nested
ones took it two minutes. So a pattern says first what is a whole, known tag; what the parser is
then given is flat, and holds nothing but text and entities.
"""

from __future__ import annotations

import re
from html.entities import html5

from selectolax.lexbor import LexborHTMLParser

# `<s>` is struck-through text to a browser and a control token to RoBERTa: words beside it must
# not run together.
_SPACED = frozenset({"td", "th", "s"})
_BLOCK_NAMES = (
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li "
    "main nav ol optgroup option p pre script section select style summary table tbody template "
    "textarea tfoot thead title tr ul xmp noscript"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_INLINE_NAMES = (
    "a abbr acronym area audio b base bdi bdo big blink button canvas cite code col colgroup data "
    "datalist del dfn em embed font frame i img input ins kbd label link map mark marquee meta "
    "meter object output param picture progress q rp rt ruby samp small source span strike "
    "strong sub sup svg time track tt u var video wbr o:p"
)
_INLINE = frozenset(_INLINE_NAMES.split())
_KNOWN = _SPACED | _BLOCKS | _INLINE

# Each alternative stops at the next `<`, so the cost is linear whatever the text.
_TAG = re.compile(
    r"""<(?P<close>/?)(?P<name>[a-zA-Z][a-zA-Z0-9:]*+)"""
    r"""(?P<attributes>(?:[\s/](?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+)?)>"""
)
_OPENING = re.compile(r"<(?P<kind>script|style)(?:\s[^<>]*+)?>|<(?P<comment>!--)", re.IGNORECASE)
_ENDS = {
    "script": re.compile(r"</script\s*+>", re.IGNORECASE),
    "style": re.compile(r"</style\s*+>", re.IGNORECASE),
    "comment": re.compile("-->"),
}
_DECLARATION = re.compile(
    r"<!doctype[^<>]*+>|<!\[(?:if|endif)[^<>\]]*+\]>|<\?xml[^<>]*+>", re.IGNORECASE
)
# The preview line of newsletters, which no reader sees. Only where it holds no tag of its own: its
# end is then sure. Bounded, for a text can say `display:none` again and again.
_HIDDEN = re.compile(
    r"""<(?P<name>div|span|p|td)\s[^<>]{0,200}?style\s?=\s?(?P<quote>["'])[^<>"']{0,300}?"""
    r"""display\s?:\s?none[^<>"']{0,300}(?P=quote)[^<>]{0,200}>[^<]{0,2000}</(?P=name)\s?>""",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:(?P<name>[a-zA-Z][a-zA-Z0-9]{1,31})|#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8});")
# Text escaped twice or more, `&amp;amp;lt;`, is read in one go.
_ESCAPED_AMPERSAND = re.compile(r"&(?:(?:amp|AMP|#0{0,6}38|#[xX]0{0,6}26);)+")
_MARKUP = re.compile(r"[<&]")


def html_to_text(text: str) -> str:
    """The text without markup; one that holds no whole tag and no entity is returned as it is."""
    if not _MARKUP.search(text):
        return text
    plain = _without_invisible(text) if "<" in text else text
    plain = _TAG.sub(_as_space, plain)
    plain = _ESCAPED_AMPERSAND.sub("&", plain)
    return _decoded(plain) if _has_entity(plain) else plain


def _without_invisible(text: str) -> str:
    """The text without comments, scripts, styles and hidden lines that have an end."""
    parts: list[str] = []
    position = 0
    endless: set[str] = set()  # no end from here on: looking again from each start is quadratic
    for opening in _OPENING.finditer(text):
        kind = (opening["kind"] or "comment").lower()
        if opening.start() < position or kind in endless:
            continue
        end = _ENDS[kind].search(text, opening.end())
        if end is None:
            endless.add(kind)
            continue
        parts += [text[position : opening.start()], " "]
        position = end.end()
    parts.append(text[position:])
    shown = _DECLARATION.sub(" ", "".join(parts))
    return _HIDDEN.sub(" ", shown) if "isplay" in shown or "ISPLAY" in shown else shown


def _as_space(match: re.Match[str]) -> str:
    """What a tag leaves behind: a line break, a space, nothing, or itself if it is no tag."""
    name = match["name"].lower()
    if name not in _KNOWN:
        return match[0]
    attributes = match["attributes"].strip(" /")
    if len(name) == 1 and attributes and "=" not in attributes:  # `<b and c>` is a comparison
        return match[0]
    if name in _SPACED:
        return " "
    return "\n" if name in _BLOCKS else ""


def _has_entity(text: str) -> bool:
    return any(_is_entity(match) for match in _ENTITY.finditer(text))


def _is_entity(match: re.Match[str]) -> bool:
    return match["name"] is None or f"{match['name']};" in html5


def _decoded(text: str) -> str:
    """Entities as characters; all else is escaped first, for `&copy=2` is an entity to a parser."""
    parts: list[str] = []
    position = 0
    for match in _ENTITY.finditer(text):
        if _is_entity(match):
            parts += [_escaped(text[position : match.start()]), match[0]]
            position = match.end()
    parts.append(_escaped(text[position:]))
    body = LexborHTMLParser("<body>" + "".join(parts)).body
    return str(body.text(deep=True, separator="", strip=False)) if body else text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
