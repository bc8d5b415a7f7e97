"""Repair of mojibake and broken surrogates by ftfy, and Unicode normal form C."""

from __future__ import annotations

from ftfy import TextFixerConfig, fix_text

# Only repairs: curly quotes, ligatures and full-width forms are the writer's own; HTML and line
# ends are other steps' work.
_CONFIG = TextFixerConfig(
    unescape_html=False,
    uncurl_quotes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    fix_line_breaks=False,
    remove_control_chars=False,
    explain=False,
)


def repair_unicode(text: str) -> str:
    """The text in NFC with mojibake undone; a lone surrogate becomes U+FFFD.

    Plain ASCII cannot be mojibake, so it costs nothing.
    """
    return text if text.isascii() else fix_text(text, _CONFIG)
