"""Windows cover the whole text, fit the model, and split no grapheme."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.window import Tokens, Window, Windows, WindowTemplate, make_windows
from schemas.errors import ConfigError
from schemas.task import WindowConfig

if TYPE_CHECKING:
    from pathlib import Path

CLS, SEP = 101, 102
SINGLE = WindowTemplate(gaps=((CLS,), (SEP,)), types=(0,), gap_types=((0,), (0,)))
PAIR = WindowTemplate(gaps=((CLS,), (SEP,), (SEP,)), types=(0, 1), gap_types=((0,), (0,), (1,)))
# One token before a text and two between texts: RoBERTa's way.
ROBERTA = WindowTemplate(gaps=((0,), (2, 2), (2,)), types=(0, 0), gap_types=((0,), (0, 0), (0,)))
FAMILY = "👨\u200d👩\u200d👧"
FLAG = "🇩🇪"
ACCENT = "e\u0301"
PIECES = st.sampled_from(["word", "a", "", " ", FAMILY, FLAG, ACCENT, "é", "你", "क्षि", "❤️"])


def by_character(text: str, *, first_id: int = 1000) -> Tokens:
    """A token for each character that is no space: the cuts inside graphemes are all there."""
    places = [(index, index + 1) for index, char in enumerate(text) if not char.isspace()]
    return Tokens(tuple(range(first_id, first_id + len(places))), tuple(places))


def cut(
    text: str, *, max_tokens: int = 8, stride: int = 2, head: str | None = None
) -> tuple[Windows, Tokens]:
    body = by_character(text)
    parts = [body] if head is None else [by_character(head, first_id=1), body]
    config = WindowConfig(max_tokens=max_tokens, stride_tokens=stride)
    template = SINGLE if head is None else PAIR
    texts = [text] if head is None else [head, text]
    return make_windows(parts, texts, template=template, config=config), body


def borders(text: str) -> set[int]:
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


def body_ids(window: Window) -> tuple[int, ...]:
    return tuple(token for token in window.input_ids if token >= 1000)


@given(
    text=st.lists(PIECES, max_size=60).map("".join),
    sizes=st.tuples(st.integers(8, 40), st.integers(0, 20)),
    head=st.none() | st.text("abc", max_size=30),
)
def test_every_body_token_is_in_a_window_and_every_window_fits(
    text: str, sizes: tuple[int, int], head: str | None
) -> None:
    """FAILURES row 38: more tokens than the model reads are windows, never a silent cut."""
    max_tokens, stride = sizes[0], min(sizes[1], sizes[0] // 2)
    made, body = cut(text, max_tokens=max_tokens, stride=stride, head=head)
    assert {token for window in made.windows for token in body_ids(window)} == set(body.ids)
    assert all(1 <= window.n_tokens <= max_tokens for window in made.windows)
    assert all(len(window.type_ids) == window.n_tokens for window in made.windows)


@given(
    text=st.lists(PIECES, max_size=60).map("".join),
    sizes=st.tuples(st.integers(8, 40), st.integers(0, 20)),
    is_token=st.sampled_from(["\\S", "[a-zé你]", "\\w", "[^\u0301\u200d\\s]"]),
)
def test_every_character_but_space_is_in_a_span(
    text: str, sizes: tuple[int, int], is_token: str
) -> None:
    """Also what a tokenizer drops, such as accents, can be traced to a window."""
    places = [match.span() for match in re.finditer(is_token, text)]
    tokens = Tokens(tuple(range(len(places))), tuple(places))
    config = WindowConfig(max_tokens=sizes[0], stride_tokens=min(sizes[1], sizes[0] // 2))
    made = make_windows([tokens], [text], template=SINGLE, config=config)
    covered = {at for window in made.windows for at in range(window.start_char, window.end_char)}
    wanted = {at for at, char in enumerate(text) if not char.isspace()} if places else set()
    assert wanted <= covered
    for window in made.windows:
        span = text[window.start_char : window.end_char]
        assert span == span.strip()


def whole_text_spans(tokens: Tokens, text: str, room: int, overlap: int) -> list[tuple[int, int]]:
    """The reference: all borders of the text are known beforehand."""
    known, count = borders(text), len(tokens.ids)

    def clean(at: int, floor: int) -> int | None:
        for index in range(at, floor - 1, -1):
            if tokens.offsets[index - 1][1] <= tokens.offsets[index][0] in known:
                return index
        return None

    spans: list[tuple[int, int]] = []
    start = stop = 0
    while start + room < count:
        cut = clean(start + room, stop + 1)
        if cut is None and start < stop:
            start = stop
            continue
        stop = start + room if cut is None else cut
        spans.append((start, stop))
        start = clean(stop - overlap, start + 1) or stop
    return [*spans, (start, count)]


@given(
    text=st.lists(PIECES | st.sampled_from(["\u0301" * 30, FLAG * 20]), max_size=60).map("".join),
    max_tokens=st.integers(8, 40),
    stride=st.integers(0, 4),
)
def test_windows_are_those_that_all_borders_of_the_text_give(
    text: str, max_tokens: int, stride: int
) -> None:
    made, body = cut(text, max_tokens=max_tokens, stride=stride)
    room = max_tokens - SINGLE.n_control
    wanted = whole_text_spans(body, text, room, min(stride, room // 2))
    assert [body_ids(window) for window in made.windows] == [body.ids[a:b] for a, b in wanted]


@pytest.mark.parametrize(
    "unit",
    [
        "word ",
        "a",
        FLAG,
        FAMILY,
        "e\u0301",
        "e" + "\u0301" * 300,
        "\u0301",
        FAMILY * 9 + "\u0301" * 200,
    ],
)
@pytest.mark.parametrize("head", [None, "subject " * 10_000])
def test_failure_39_a_giant_text_costs_time_and_windows_in_line_with_its_tokens(
    unit: str, head: str | None
) -> None:
    text = unit * (100_000 // len(unit))
    started = time.process_time()
    made, body = cut(text, max_tokens=256, stride=64, head=head)
    assert time.process_time() - started < 2.0
    # A window adds a room less the overlap; a giant grapheme may cost it a second one.
    room = 254 if head is None else 127
    assert len(made.windows) <= 2 * len(body.ids) / (room - min(64, room // 2)) + 2
    assert made.truncated == (head is not None)


@given(st.text("ab ", min_size=1, max_size=200), st.integers(0, 4))
def test_neighbours_share_exactly_the_stride(text: str, stride: int) -> None:
    made, _ = cut(text, max_tokens=10, stride=stride)
    pairs = list(zip(made.windows, made.windows[1:], strict=False))
    assert [len({*body_ids(a)} & {*body_ids(b)}) for a, b in pairs] == [stride] * len(pairs)


@given(st.lists(PIECES, max_size=60).map("".join), st.integers(0, 4))
def test_windows_advance_and_follow_each_other(text: str, stride: int) -> None:
    """FAILURES row 39: a budget smaller than one document must not loop for ever."""
    made, _ = cut(text, stride=stride)
    starts = [window.start_char for window in made.windows]
    ends = [window.end_char for window in made.windows]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))


@given(st.lists(PIECES, min_size=1, max_size=60).map("".join))
def test_no_cut_splits_a_grapheme(text: str) -> None:
    """FAILURES row 40: a family of emoji, a flag or an accent is in one window as a whole."""
    made, _ = cut(text, max_tokens=16, stride=4)
    for window in made.windows:
        assert {window.start_char, window.end_char} <= borders(text)


@pytest.mark.parametrize("unit", [FAMILY, FLAG, ACCENT, "👍🏽", "❤️"])
def test_a_grapheme_at_the_cut_moves_whole_into_the_next_window(unit: str) -> None:
    """FAILURES row 40: the window ends before the grapheme, not inside of it."""
    text = "abcde" + unit + "xyz"
    made, _ = cut(text, max_tokens=8, stride=0)
    assert [text[w.start_char : w.end_char] for w in made.windows][:2] == ["abcde", text[5:11]]


def test_overlap_gives_way_to_a_grapheme_that_only_fits_without_it() -> None:
    text = "word" + FAMILY + "end"
    made, _ = cut(text, max_tokens=8, stride=2)
    assert [text[w.start_char : w.end_char] for w in made.windows] == [
        "word",
        FAMILY + "e",
        "nd",
    ]


def test_a_grapheme_longer_than_a_window_is_cut_after_all() -> None:
    """An endless run of combining marks must not stop the window from filling."""
    made, body = cut("e" + "\u0301" * 40, stride=2)
    assert {token for window in made.windows for token in body_ids(window)} == set(body.ids)
    assert len(made.windows) <= 11


def test_control_ids_stand_where_the_template_says_and_nowhere_else() -> None:
    made, body = cut("abcdefghij", max_tokens=8, stride=0, head="q")
    assert [window.input_ids for window in made.windows] == [
        (CLS, 1, SEP, *body.ids[:4], SEP),
        (CLS, 1, SEP, *body.ids[4:8], SEP),
        (CLS, 1, SEP, *body.ids[8:], SEP),
    ]
    assert made.windows[0].type_ids == (0, 0, 0, 1, 1, 1, 1, 1)
    assert made.windows[2].type_ids == (0, 0, 0, 1, 1, 1)


def test_a_template_with_two_separators_is_followed() -> None:
    parts = [by_character("q", first_id=10), by_character("ab")]
    config = WindowConfig(max_tokens=8, stride_tokens=0)
    made = make_windows(parts, ["q", "ab"], template=ROBERTA, config=config)
    assert made.windows == (Window((0, 10, 2, 2, 1000, 1001, 2), (0,) * 7, 0, 2),)


def test_offsets_trace_back_to_the_text() -> None:
    text = "ab  cd efgh ij"
    made, _ = cut(text, max_tokens=8, stride=2)
    assert [text[w.start_char : w.end_char] for w in made.windows] == ["ab  cd ef", "efgh ij"]


@pytest.mark.parametrize("body", ["", "   "])
def test_an_empty_body_with_a_subject_is_one_window_of_the_subject(body: str) -> None:
    made, _ = cut(body, head="abc")
    assert made == Windows((Window((CLS, 1, 2, 3, SEP, SEP), (0, 0, 0, 0, 0, 1), 0, 0),), False)


def test_an_empty_text_is_one_window_of_control_tokens() -> None:
    made, _ = cut("")
    assert made == Windows((Window((CLS, SEP), (0, 0), 0, 0),), False)


def test_a_long_subject_is_cut_at_half_a_window_and_that_is_flagged() -> None:
    """FAILURES row 38: what is in no window is told by `truncated`."""
    made, _ = cut("abcdef", max_tokens=11, stride=0, head="0123456789")
    assert made.truncated
    assert [token for token in made.windows[0].input_ids if token < 100] == [1, 2, 3, 4]
    assert [len(body_ids(window)) for window in made.windows] == [4, 2]


def test_failure_40_a_long_subject_is_cut_before_a_grapheme_not_inside() -> None:
    made, _ = cut("abcdef", max_tokens=13, stride=0, head="012" + FAMILY + "3")
    assert [token for token in made.windows[0].input_ids if token < 100] == [1, 2, 3]


@given(
    head=st.text("ab", max_size=40),
    body=st.text("cd", max_size=40),
    max_tokens=st.integers(8, 12),
    template=st.sampled_from([PAIR, ROBERTA]),
)
def test_failure_39_a_pair_with_hardly_any_room_comes_to_an_end(
    head: str, body: str, max_tokens: int, template: WindowTemplate
) -> None:
    parts = [by_character(head, first_id=1), by_character(body)]
    config = WindowConfig(max_tokens=max_tokens, stride_tokens=4)
    made = make_windows(parts, [head, body], template=template, config=config)
    assert len(made.windows) <= max(1, len(body))
    assert all(window.n_tokens <= max_tokens for window in made.windows)
    assert {token for window in made.windows for token in body_ids(window)} == set(parts[1].ids)


def test_a_text_that_fits_is_one_window() -> None:
    made, _ = cut("abcdef", max_tokens=8)
    assert len(made.windows) == 1
    made, _ = cut("abcdefg", max_tokens=8)
    assert len(made.windows) == 2


def test_no_room_between_control_tokens_is_a_config_error() -> None:
    wide = WindowTemplate(gaps=((1,) * 4, (2,) * 3), types=(0,), gap_types=((0,) * 4, (0,) * 3))
    config = WindowConfig(max_tokens=8, stride_tokens=0)
    with pytest.raises(ConfigError, match=r"window\.max_tokens 8 leaves no room"):
        make_windows([by_character("ab")], ["ab"], template=wide, config=config)


@given(
    st.lists(
        st.sampled_from(
            ["refund ", "payment", FAMILY, FLAG, " crash ", "x1y2 ", "\n", "zzzz", "[SEP]"]
        ),
        max_size=80,
    ).map("".join)
)
def test_with_a_real_tokenizer_nothing_is_lost(tiny_tokenizer_path: Path, text: str) -> None:
    """FAILURES row 41: windows come from offsets, by our own code."""
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    (tokens,) = tokenizer.tokenize([text])
    config = WindowConfig(max_tokens=16, stride_tokens=4)
    made = make_windows([tokens], [text], template=tokenizer.single, config=config)
    control = {tokenizer.single.gaps[0][0], tokenizer.single.gaps[1][0]}
    for window in made.windows:
        assert window.n_tokens <= 16
        assert not control & set(window.input_ids[1:-1])
    if tokens.ids:
        assert made.windows[0].start_char == tokens.offsets[0][0]
        assert made.windows[-1].end_char == tokens.offsets[-1][1]


class PythonWordPiece:
    """What a slow tokenizer does, in Python: lower case, split, the longest pieces that fit."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = json.loads(path.read_text())["model"]["vocab"]

    def tokenize(self, text: str) -> Tokens:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for word in re.finditer(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]", text):
            start = word.start()
            while start < word.end():
                start, piece, place = self.longest(text, word.start(), start, word.end())
                ids.append(piece)
                offsets.append(place)
        return Tokens(tuple(ids), tuple(offsets))

    def longest(
        self, text: str, first: int, start: int, end: int
    ) -> tuple[int, int, tuple[int, int]]:
        prefix = "##" if start > first else ""
        for stop in range(end, start, -1):
            if (piece := self.vocabulary.get(prefix + text[start:stop].lower())) is not None:
                return stop, piece, (start, stop)
        return end, self.vocabulary["[UNK]"], (start, end)


@given(
    st.lists(
        st.sampled_from(["Refund ", "payments", "x1y2 ", "!", "\n", "zz", "(card)"]), max_size=60
    ).map("".join)
)
def test_failure_41_a_slow_tokenizer_and_the_fast_one_give_equal_windows(
    tiny_tokenizer_path: Path, text: str
) -> None:
    """Overflow windows of the two differ in structure elsewhere; ours need ids and offsets only."""
    fast = BackboneTokenizer(tiny_tokenizer_path)
    slow = PythonWordPiece(tiny_tokenizer_path)
    config = WindowConfig(max_tokens=16, stride_tokens=4)
    from_fast, from_slow = (
        make_windows([tokens], [text], template=fast.single, config=config)
        for tokens in (fast.tokenize([text])[0], slow.tokenize(text))
    )
    assert from_fast == from_slow
