"""Cuts a tokenized text into windows that a model can read, without losing any of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.task import WindowConfig


_LONGEST_GRAPHEME = 64  # characters looked back for where a grapheme began; families have 11


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
    """What the model reads at once: ids and segment ids `(T,)`, and where in the body it lies."""

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


def cut_at_grapheme(text: str, max_chars: int) -> str:
    """The beginning of a text, at most `max_chars` long, without half a grapheme at its end.

    A grapheme that alone is longer (letters under heaps of accents) is cut inside.
    """
    if len(text) <= max_chars:
        return text
    cut = 0
    # The text behind the bound decides whether the last grapheme ends there.
    for grapheme in regex.finditer(r"\X", text, pos=max(0, max_chars - _LONGEST_GRAPHEME)):
        if grapheme.end() > max_chars:
            break
        cut = grapheme.end()
    return text[: cut or max_chars]


def make_windows(
    parts: Sequence[Tokens], body: str, *, template: WindowTemplate, config: WindowConfig
) -> Windows:
    """Windows of a record: the last part is cut, the part before it is repeated in each.

    Every body token is in at least one window, and neighbours share `stride_tokens` tokens, fewer
    where a grapheme stands in the way: a cut never splits one that fits into a window. A repeated
    head takes at most half of a window, or what a short body leaves.

    Raises:
        ConfigError: `max_tokens` leaves no room for text between the control tokens.
    """
    *heads, last = parts
    room = config.max_tokens - template.n_control
    if room < 2:
        raise ConfigError(f"window.max_tokens {config.max_tokens} leaves no room for text")
    head_ids = heads[0].ids[: max(room // 2, room - len(last.ids))] if heads else ()
    truncated = bool(heads) and len(head_ids) < len(heads[0].ids)
    room -= len(head_ids)
    spans = _spans(last, body, room=room, overlap=min(config.stride_tokens, room // 2))
    windows = [_assemble(template, head_ids, last, span) for span in spans]
    return Windows(tuple(windows), truncated)


def _spans(tokens: Tokens, text: str, *, room: int, overlap: int) -> list[tuple[int, int]]:
    """Token ranges that cover the text, each at most `room` long."""
    count = len(tokens.ids)
    if count <= room:
        return [(0, count)]
    boundaries = {0, len(text)} | {match.end() for match in regex.finditer(r"\X", text)}
    spans: list[tuple[int, int]] = []
    start = stop = 0
    while start + room < count:
        cut = _clean_cut(tokens, boundaries, at=start + room, floor=stop + 1)
        if cut is None and start < stop:
            start = stop  # without overlap the grapheme at the cut may fit as a whole
            continue
        stop = start + room if cut is None else cut
        spans.append((start, stop))
        start = _clean_cut(tokens, boundaries, at=stop - overlap, floor=start + 1) or stop
    return [*spans, (start, count)]


def _clean_cut(tokens: Tokens, boundaries: set[int], *, at: int, floor: int) -> int | None:
    """The last token index in `floor..at` before which a cut splits no grapheme."""
    for index in range(at, floor - 1, -1):
        before, after = tokens.offsets[index - 1], tokens.offsets[index]
        if before[1] <= after[0] and after[0] in boundaries:
            return index
    return None


def _assemble(
    template: WindowTemplate, head_ids: tuple[int, ...], body: Tokens, span: tuple[int, int]
) -> Window:
    start, stop = span
    texts = [body.ids[start:stop]]
    if len(template.gaps) == 3:
        texts.insert(0, head_ids)
    ids, types = list(template.gaps[0]), list(template.gap_types[0])
    for text_ids, type_id, gap, gap_types in zip(
        texts, template.types, template.gaps[1:], template.gap_types[1:], strict=True
    ):
        ids += [*text_ids, *gap]
        types += [*[type_id] * len(text_ids), *gap_types]
    start_char = body.offsets[start][0] if stop > start else 0
    end_char = body.offsets[stop - 1][1] if stop > start else 0
    return Window(tuple(ids), tuple(types), start_char, end_char)
