"""Dirt inside a text, as mail gateways, exports and pranksters leave it; the row stays sound."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from pipeline.sample.chance import happens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

# Independent rates: a text may have several kinds, applied in this order.
TEXT_DIRT_RATES = {
    "quotes": 0.03,
    "special_tokens": 0.015,
    "html": 0.05,
    "mojibake": 0.02,
    "zero_width": 0.015,
    "bidi": 0.01,
    "controls": 0.01,
    "crlf": 0.08,
}
SPECIAL_TOKENS = (
    "[SEP]", "[CLS]", "[MASK]", "[PAD]", "[UNK]", "<s>", "</s>", "<mask>", "<|endoftext|>",
    "[ SEP ]", "[sep]", "［ＳＥＰ］",
)  # fmt: skip
ZERO_WIDTH = ("\u200b", "\u2060", "\ufeff", "\u00ad")
CONTROLS = ("\x00", "\x07", "\x0b", "\x1b[0m", "\x7f", "\x85", "\u2028")
BIDI_OVERRIDE, BIDI_POP = "\u202e", "\u202c"
_SCRIPT = '<script>window.dataLayer=[];track("open");</script>'
_STYLE = '<style type="text/css">p{margin:0;font-family:Arial}</style>'
_ASIDES = (
    'as you say, "no problem, ever",',
    'order type "express, insured"',
    '(quote: "we call back, promised")',
)
_ACCENTED = ("Müller", "José", "Zoë", "François", "naïve – or not")


def soil(text: str, rng: Random, *, scale: float) -> str:
    """The text with every kind of dirt at `scale` times its rate."""
    for name, rate in TEXT_DIRT_RATES.items():
        if happens(rng, rate * scale):
            text = _DIRT[name](text, rng)
    return text


def _quotes(text: str, rng: Random) -> str:
    return f"{text} {rng.choice(_ASIDES)}"


def _special_tokens(text: str, rng: Random) -> str:
    return _insert(text, rng.choice(SPECIAL_TOKENS), rng)


def _html(text: str, rng: Random) -> str:
    lines = [html.escape(line).replace("  ", "&nbsp; ") for line in text.split("\n")]
    body = (
        "<br>\n".join(lines) if happens(rng, 0.5) else "".join(f"<p>{line}</p>" for line in lines)
    )
    extra = _SCRIPT if happens(rng, 0.4) else _STYLE
    return f"<html><head>{extra}</head><body>{body}&nbsp;</body></html>"


def _mojibake(text: str, rng: Random) -> str:
    """UTF-8 read as Windows-1252: `don’t` becomes `donâ€™t`."""
    curly = text.replace("'", "’")
    if curly.isascii():
        curly = f"{curly} {rng.choice(_ACCENTED)}"
    return "".join(_misread(byte) for byte in curly.encode())


def _misread(byte: int) -> str:
    try:
        return bytes((byte,)).decode("cp1252")
    except UnicodeDecodeError:  # five bytes have no character there; browsers keep them
        return chr(byte)


def _zero_width(text: str, rng: Random) -> str:
    mark = rng.choice(ZERO_WIDTH)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        text = text[:at] + mark + text[at:]
    return text


def _bidi(text: str, rng: Random) -> str:
    return _insert(text, f"{BIDI_OVERRIDE}{rng.choice(('kcab yenom', 'gpj.exe'))}{BIDI_POP}", rng)


def _controls(text: str, rng: Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(CONTROLS) + text[at:]


def _crlf(text: str, rng: Random) -> str:
    if "\n" not in text:
        text = f"{text}\n\nSent with {rng.choice(('Outlook', 'Thunderbird', 'WebMail'))}"
    return text.replace("\n", "\r\n")


def _insert(text: str, piece: str, rng: Random) -> str:
    """The text with one more word at a random place; line breaks stay as they are."""
    words = text.split(" ")
    words.insert(rng.randint(0, len(words)), piece)
    return " ".join(words)


_DIRT: Mapping[str, Callable[[str, Random], str]] = {
    "quotes": _quotes,
    "special_tokens": _special_tokens,
    "html": _html,
    "mojibake": _mojibake,
    "zero_width": _zero_width,
    "bidi": _bidi,
    "controls": _controls,
    "crlf": _crlf,
}
