from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.split import (
    _CLOSED_LINES,
    HEAD_BYTES,
    Flaw,
    Piece,
    _scan,
    _State,
    split_csv,
    split_lines,
)


def csv_pieces(content: bytes, **options) -> list[Piece]:
    return list(split_csv(io.BytesIO(content), delimiter=b",", **options))


def line_pieces(content: bytes, **options) -> list[Piece]:
    return list(split_lines(io.BytesIO(content), **options))


def told(pieces: list[Piece]) -> list[tuple[bytes, str | None]]:
    return [(piece.raw, piece.flaw and piece.flaw.name) for piece in pieces]


@given(st.lists(st.sampled_from([b'"', b'""', b",", b"a", b"\r", b" "])).map(b"".join))
def test_the_quick_look_at_a_line_agrees_with_the_scan(line):
    closed = _scan(line + b"\n", b",", _State.FIELD_START) is _State.CLOSED
    assert (_CLOSED_LINES[b","].fullmatch(line + b"\n") is not None) == closed


@given(
    line=st.lists(st.sampled_from([b'"', b'""', b",", b"a", b"\r", b" "])).map(b"".join),
    cut=st.integers(0, 20),
    state=st.sampled_from([_State.FIELD_START, _State.QUOTED_ACROSS]),
)
def test_where_a_line_is_cut_into_chunks_does_not_matter(line, cut, state):
    whole = _scan(line + b"\n", b",", state)
    first = _scan(line[:cut], b",", state)
    if first is not _State.BROKEN:
        first = _scan(line[cut:] + b"\n", b",", first)
    assert first is whole


def test_mixed_line_ends_are_all_line_ends():
    assert told(csv_pieces(b"a,b\r\nc,d\ne,f\r\r\n\r\n\ng")) == [
        (b"a,b", None),
        (b"c,d", None),
        (b"e,f", None),
        (b"g", None),
    ]
    assert told(line_pieces(b"{}\r\n{}\n \r\n{}")) == [(b"{}", None)] * 3


def test_a_lone_carriage_return_ends_no_record():
    assert told(csv_pieces(b"a\rb\nc\n")) == [(b"a\rb", None), (b"c", None)]


@pytest.mark.parametrize("split", [csv_pieces, line_pieces])
def test_a_line_over_the_limit_is_skipped_and_hashed(split):
    long = b"x" * 3_000_000
    pieces = split(b"a\n" + long + b"\r\nb\n", max_bytes=2_000_000)
    assert told(pieces) == [(b"a", None), (long[:HEAD_BYTES], "TOO_LARGE"), (b"b", None)]
    assert pieces[1].sha256 == hashlib.sha256(long).hexdigest()
    assert pieces[1].size == len(long)
    assert pieces[1].stop - pieces[1].start == len(long) + 2


def test_a_record_of_just_the_limit_is_read():
    for split in (csv_pieces, line_pieces):
        assert told(split(b"x" * 2000 + b"\r\n", max_bytes=2000)) == [(b"x" * 2000, None)]
        assert split(b"x" * 2001 + b"\n", max_bytes=2000)[0].flaw is Flaw.TOO_LARGE


def test_a_quoted_field_of_many_lines_over_the_limit_is_one_record():
    field = b'1,"' + b"line, \n" * 1000 + b'"'
    pieces = csv_pieces(field + b"\n2,fine\n", max_bytes=2000)
    assert [piece.flaw for piece in pieces] == [Flaw.TOO_LARGE, None]
    assert pieces[0].sha256 == hashlib.sha256(field).hexdigest()
    assert pieces[1].raw == b"2,fine"


def test_a_quote_that_never_closes_over_the_limit_costs_one_row():
    pieces = csv_pieces(b'1,"open\n' + b"2,fine\n" * 1000, max_bytes=1024)
    assert told(pieces) == [(b'1,"open', "UNCLOSED"), *[(b"2,fine", None)] * 1000]


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (b"a,b\nc,d\n", b""),
        (b"a,b\nc,d\ne", b"e"),
        (b'a,b\nc,d\n1,"two\nlines\n', b'1,"two\nlines'),
        (b'a,b\nc,d\n1,"tw""', b'1,"tw""'),
        (b"a,b\nc,d\n\n", b""),
    ],
)
def test_what_a_cut_leaves_is_the_last_piece(content, rest):
    assert told(csv_pieces(content, cut_off=True)) == [
        (b"a,b", None),
        (b"c,d", None),
        (rest, "CUT_OFF"),
    ]


def test_what_a_cut_leaves_of_a_jsonl_file():
    assert told(line_pieces(b"{}\n{", cut_off=True)) == [(b"{}", None), (b"{", "CUT_OFF")]
    assert told(line_pieces(b"{}\n", cut_off=True)) == [(b"{}", None), (b"", "CUT_OFF")]
    assert told(line_pieces(b"", cut_off=True)) == [(b"", "CUT_OFF")]
    assert told(line_pieces(b"x" * 3000, cut_off=True, max_bytes=1024)) == [
        (b"x" * 3000, "CUT_OFF")
    ]


@given(
    content=st.lists(
        st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"a", b"b" * 9, b'\n"'])
    ).map(b"".join),
    max_bytes=st.integers(1, 30),
    cut_off=st.booleans(),
)
def test_any_piece_can_be_read_from_its_own_start(content, max_bytes, cut_off):
    options = {"max_bytes": max_bytes, "cut_off": cut_off}
    pieces = csv_pieces(content, **options)
    assert sum(piece.flaw is Flaw.CUT_OFF for piece in pieces) == cut_off
    for index, piece in enumerate(pieces):
        assert csv_pieces(content, start=piece.start, **options) == pieces[index:]
    covered = b"".join(content[piece.start : piece.stop] for piece in pieces)
    assert covered.replace(b"\r", b"").replace(b"\n", b"") == content.replace(b"\r", b"").replace(
        b"\n", b""
    )
