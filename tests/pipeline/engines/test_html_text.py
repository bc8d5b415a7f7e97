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
        ("<table><tr><th>a</th><th>b</th></tr></table>", "\n\n a  b \n\n"),
        ("<ol><li>a<ul><li>b</ul></ol>c", "\n\na\n\nb\n\nc"),
        ('<div style="color:red;display: none">preview</div>x', " x"),
        ("<span style='DISPLAY:NONE'>&nbsp;&zwnj;</span>x", " x"),
        ('<div style="display:none">a <b>bold</b></div>x', "\na bold\nx"),
        ('<div style="display:none">never closed', "\nnever closed"),
        ("display:none is CSS", None),
        ("<!--[if mso]><p>old</p><![endif]-->x", " x"),
        ("<!--[if !mso]><!--><p>a</p><!--<![endif]-->", " \na\n "),
        ("<![if !mso]>a<![endif]>", " a "),
        ("<style type='text/css'>a > b {}</style >x", " x"),
        ("<SCRIPT>x</SCRIPT><script src='a'></script>y", "  y"),
        ("a<style>b", "a\nb"),
        ("  <p>a</p>  <x> <b", "  \na\n  <x> <b"),
    ],
)
def test_html_to_text(text, expected):
    assert html_to_text(text) == (text if expected is None else expected)
