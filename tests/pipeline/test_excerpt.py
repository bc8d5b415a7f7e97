"""What people see of a foreign row: bounded, on one line, and nothing that a terminal obeys."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.excerpt import Excerpts, printable
from schemas.task import CleanConfig


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("two\nlines\tand\x1b[2Jmore", r"two\nlines\tand\x1b[2Jmore"),
        ("user \u202egnp.exe", r"user \u202egnp.exe"),
        ("zero\u200bwidth\u2028", r"zero\u200bwidth\u2028"),
        ("日本語とemoji 👍", "日本語とemoji 👍"),
    ],
)
def test_what_has_no_shape_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text, max_chars=100) == shown


def test_a_long_text_ends_with_an_ellipsis_and_never_within_an_escape() -> None:
    assert printable("abcdef", max_chars=6) == "abcdef"
    assert printable("abcdefg", max_chars=6) == "abcdef…"
    assert printable("abc\u202edef", max_chars=6) == "abc…"


@given(st.text(), st.integers(0, 50))
def test_shown_text_is_bounded_and_has_no_controls(text: str, max_chars: int) -> None:
    shown = printable(text, max_chars=max_chars)
    assert len(shown) <= max_chars + 1
    assert all(unicodedata.category(char)[0] not in "C" for char in shown)


def excerpts(*, masked: bool = True, **clean: object) -> Excerpts:
    return Excerpts(CleanConfig.model_validate(clean), max_chars=60, masked=masked)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"body": "write to ada@example.org"}',
        b'{"body": "write to ada\\u0040example.org"}',  # hidden by JSON's own escape
        b"7,ada@example.org,late parcel",
    ],
)
def test_an_address_is_masked_unless_asked_for(raw: bytes) -> None:
    shown = excerpts().of(raw)
    assert "[EMAIL]" in shown
    assert "example" not in shown
    assert "example.org" in excerpts(masked=False).of(raw)


def test_masks_are_on_even_where_the_task_switches_them_off() -> None:
    shown = excerpts(steps=["whitespace"], without=["pii_email"]).of(b"ada@example.org")
    assert shown == "[EMAIL]"


def test_bytes_that_are_not_utf8_are_shown_in_hex() -> None:
    assert excerpts().of(b"caf\xe9 \x00") == "caf\\xe9 \\x00"


def test_escaped_pairs_of_surrogates_are_joined_and_lone_ones_do_not_fail() -> None:
    assert excerpts().of(b'"\\ud83d\\udc4d \\ud83d"') == '"👍 \ufffd"'


def test_a_giant_row_costs_no_more_than_its_beginning() -> None:
    assert len(excerpts().of(b"word " * 10_000_000)) == 61
