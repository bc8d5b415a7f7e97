"""Cuts a tokenized text into windows that a model can read, without losing any of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.graphemes import Graphemes
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.task import WindowConfig


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of one text and, for each, its `(start, end)` characters in that text."""

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WindowTemplate:
    """Control ids before, between and after the texts of a window, and all segment ids.

    `gaps` has one entry more than there are texts: `([CLS],), ([SEP],), ([SEP],)` for a BERT pair.
    """

    gaps: tuple[tuple[int, ...], ...]
    types: tuple[int, ...]
    gap_types: tuple[tuple[int, ...], ...]

    @property
    def n_control(self) -> int:
        """Tokens of a window that are not text."""
        return sum(map(len, self.gaps))


@dataclass(frozen=True, slots=True)
class Window:
    """What the model reads at once: ids and segment ids `(T,)`, and its characters of the body.

    `[start_char, end_char)` begins and ends at graphemes, without white space around it.
    """

    input_ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    start_char: int
    end_char: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the window, control tokens included."""
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of one record; `truncated` says that some text is in none of them."""

    windows: tuple[Window, ...]
    truncated: bool


def make_windows(
    parts: Sequence[Tokens], texts: Sequence[str], *, template: WindowTemplate, config: WindowConfig
) -> Windows:
    """Windows of a record from the tokens of its texts: the last is cut, the other repeated.

    Every body token is in at least one window, and neighbours share `stride_tokens` tokens, fewer
    where a grapheme stands in the way: a cut never splits one that fits into a window. A repeated
    head takes at most half of a window, or what a short body leaves.

    Raises:
        ConfigError: `max_tokens` leaves no room for text between the control tokens.
    """
    *heads, body = parts
    room = config.max_tokens - template.n_control
    if room < 2:
        raise ConfigError(f"window.max_tokens {config.max_tokens} leaves no room for text")
    head_ids: tuple[int, ...] | None = None
    truncated = False
    if heads:
        head_room = max(room // 2, room - len(body.ids))
        head_ids = _beginning(heads[0], texts[0], room=head_room)
        truncated = len(head_ids) < len(heads[0].ids)
        room -= len(head_ids)
    spans = _spans(body, texts[-1], room=room, overlap=min(config.stride_tokens, room // 2))
    windows = []
    for start, stop in spans:
        ids, types = _assemble(template, head_ids, body.ids[start:stop])
        windows.append(Window(ids, types, *_characters(body, texts[-1], start, stop)))
    return Windows(tuple(windows), truncated)


def _beginning(tokens: Tokens, text: str, *, room: int) -> tuple[int, ...]:
    """The first ids of a text, at most `room`, without half a grapheme at their end."""
    if len(tokens.ids) <= room:
        return tokens.ids
    cut = _clean_cut(tokens, Graphemes(text), at=room, floor=1)
    return tokens.ids[: cut or room]


def _spans(tokens: Tokens, text: str, *, room: int, overlap: int) -> list[tuple[int, int]]:
    """Token ranges that cover the text, each at most `room` long."""
    count = len(tokens.ids)
    if count <= room:
        return [(0, count)]
    graphemes = Graphemes(text)
    spans: list[tuple[int, int]] = []
    start = stop = 0
    while start + room < count:
        cut = _clean_cut(tokens, graphemes, at=start + room, floor=stop + 1)
        if cut is None and start < stop:
            start = stop  # without overlap the grapheme at the cut may fit as a whole
            continue
        stop = start + room if cut is None else cut
        spans.append((start, stop))
        start = _clean_cut(tokens, graphemes, at=stop - overlap, floor=start + 1) or stop
    return [*spans, (start, count)]


def _clean_cut(tokens: Tokens, graphemes: Graphemes, *, at: int, floor: int) -> int | None:
    """The last token index in `floor..at` before which a cut splits no grapheme."""
    for index in range(at, floor - 1, -1):
        before, after = tokens.offsets[index - 1], tokens.offsets[index]
        if before[1] <= after[0] and graphemes.is_border(after[0]):
            return index
    return None


def _characters(tokens: Tokens, text: str, start: int, stop: int) -> tuple[int, int]:
    """Where tokens `[start, stop)` lie in their text, with what the tokenizer left out of it.

    An accent that is no token of its own belongs to the window of its letter, so that spans cover
    every character but the white space between them.
    """
    if start == stop:
        return 0, 0
    first, last = tokens.offsets[start][0], tokens.offsets[stop - 1][1]
    if start == 0:
        first -= len(text[:first].lstrip())
    following = tokens.offsets[stop][0] if stop < len(tokens.ids) else len(text)
    return first, last + len(text[last:following].rstrip())


def _assemble(
    template: WindowTemplate, head_ids: tuple[int, ...] | None, body_ids: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids and segment ids of one window, control tokens put in between."""
    texts = [body_ids] if head_ids is None else [head_ids, body_ids]
    ids, types = list(template.gaps[0]), list(template.gap_types[0])
    for text_ids, type_id, gap, gap_types in zip(
        texts, template.types, template.gaps[1:], template.gap_types[1:], strict=True
    ):
        ids += [*text_ids, *gap]
        types += [*[type_id] * len(text_ids), *gap_types]
    return tuple(ids), tuple(types)
