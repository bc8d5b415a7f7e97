from __future__ import annotations

import pytest

from pipeline.engines.html_text import html_to_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I <3 you, 5 <6, <b and c> <https://x.y> <me@x.y>", None),
        ('<div class="x and the rest', None),
        ("AT&T ?a=1&copy=2 &nosuch;", None),
        ("<!-- never closed", None),
        ("a<b>b</b>c", "abc"),
        ("<ul><li>a</li><li>b</li></ul>", "\n\na\n\nb\n\n"),
        ("<tr><td>a</td><td>b</td></tr>", "\n a  b \n"),
        ('<a href="http://x?a>b">link</a>', "link"),
        ("x<script>if (a < b) {}</script>y<style>p{}</style>z", "x y z"),
        ("<script>alert(1) and the rest", "\nalert(1) and the rest"),
        ("a<!-- b <p> -->c", "a c"),
        ("<!DOCTYPE html><html><body>x</body></html>", " \n\nx\n\n"),
        ("&eacute;&#233;&#xE9;&nbsp;&amp;amp;lt;", "ééé\u00a0<"),
        ("?a=1&copy=2 &amp; &notit;", "?a=1&copy=2 & &notit;"),
        ("  <p>a</p>  <x> <b", "  \na\n  <x> <b"),
    ],
)
def test_html_to_text(text, expected):
    assert html_to_text(text) == (text if expected is None else expected)
