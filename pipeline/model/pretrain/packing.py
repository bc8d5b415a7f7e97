"""Sequences as the model reads them: texts side by side, or pairs; each piece exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.model.pretrain.pieces import Pieces
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.model.pretrain.pieces import Document
    from pipeline.window import WindowTemplate

CONTROL = -1  # the word of a control token
FOLLOWS, RANDOM, NO_PAIR = 0, 1, -1  # as BertForPreTraining counts, and neither


@dataclass(frozen=True, slots=True)
class PieceSequence:
    """What the model reads at once: ids, words, widths in characters, segments, each `(T,)`.

    `key` is that of its first text; `next_label` says of a pair whether its parts follow each
    other.
    """

    key: int
    ids: tuple[int, ...]
    words: tuple[int, ...]
    widths: tuple[int, ...]
    types: tuple[int, ...]
    next_label: int = NO_PAIR

    def __len__(self) -> int:
        return len(self.ids)


def pack(
    documents: Sequence[Document], *, template: WindowTemplate, max_tokens: int, packed: bool
) -> list[PieceSequence]:
    """Sequences of at most `max_tokens`; a text is only cut where it is longer than that.

    Between two parts stands what ends a sequence (`[SEP]`, `</s>`), as in RoBERTa's full
    sentences (Liu et al. 2019). Not `packed`, no two texts share a sequence.

    Raises:
        ConfigError: `max_tokens` leaves no room for text.
    """
    room = max_tokens - template.n_control
    if room < 2:
        raise ConfigError(f"pretrain.max_tokens {max_tokens} leaves no room for text; raise it")
    made: list[PieceSequence] = []
    parts: list[Pieces] = []
    key, size = 0, 0
    for document in documents:
        if parts and not packed:
            made.append(_side_by_side(parts, template, key))
            parts, size = [], 0
        for block in _blocks(document.parts, room):
            needed = len(block) + (len(template.gaps[-1]) if parts else 0)
            if parts and size + needed > room:
                made.append(_side_by_side(parts, template, key))
                parts, size, needed = [], 0, len(block)
            key = key if parts else document.key
            parts.append(block)
            size += needed
    return [*made, *([_side_by_side(parts, template, key)] if parts else [])]


def pair_up(
    documents: Sequence[Document],
    *,
    single: WindowTemplate,
    pair: WindowTemplate,
    max_tokens: int,
    seed: int,
) -> list[PieceSequence]:
    """Pairs for next-sentence prediction: two halves of a text, or of two (Devlin et al. 2019).

    Second halves of half the pairs change places among each other, so that every piece still
    occurs once. A text of one piece stays alone. A half is at most half of the room.

    Raises:
        ConfigError: `max_tokens` leaves no room for text.
    """
    half = (max_tokens - pair.n_control) // 2
    if half < 1:
        raise ConfigError(f"pretrain.max_tokens {max_tokens} leaves no room for pairs; raise it")
    halves: list[tuple[int, Pieces, Pieces]] = []
    alone: list[PieceSequence] = []
    for document in documents:
        for number, block in enumerate(_blocks([_joined(document.parts)], 2 * half)):
            if len(block) == 1:
                alone.append(_side_by_side([block], single, document.key))
            else:
                preferred = 0 if number else len(document.parts[0])
                at = _middle(block, half, preferred=preferred)
                halves.append((document.key, block[:at], block[at:]))
    seconds, labels = _exchanged([second for *_, second in halves], seed)
    pairs = [
        _pair(key, (first, second), pair, int(label))
        for (key, first, _), second, label in zip(halves, seconds, labels, strict=True)
    ]
    return pairs + alone


def _exchanged(seconds: list[Pieces], seed: int) -> tuple[list[Pieces], list[int]]:
    chooser = np.random.default_rng(seed)
    chosen = np.flatnonzero(chooser.random(len(seconds)) < 0.5)
    labels = [FOLLOWS] * len(seconds)
    exchanged = list(seconds)
    if len(chosen) > 1:
        order = chooser.permutation(chosen)
        for place, source in zip(order, np.roll(order, 1), strict=True):
            exchanged[place], labels[place] = seconds[source], RANDOM
    return exchanged, labels


def _joined(parts: Sequence[Pieces]) -> Pieces:
    return sum(parts, start=Pieces((), (), ()))


def _blocks(parts: Sequence[Pieces], room: int) -> Iterator[Pieces]:
    """Each part, in pieces of at most `room` that end at a word's end where one is near."""
    for part in parts:
        rest = part
        while len(rest) > room:
            at = _border(rest, room)
            yield rest[:at]
            rest = rest[at:]
        if len(rest):
            yield rest


def _border(pieces: Pieces, limit: int) -> int:
    """The last place up to `limit` where a word begins; `limit` where a word is that long."""
    places = range(limit, 0, -1)
    return next((at for at in places if pieces.words[at - 1] != pieces.words[at]), limit)


def _middle(block: Pieces, half: int, *, preferred: int) -> int:
    """Where to cut a block in two: between a text's parts, else at the word nearest to half."""
    lowest, highest = max(1, len(block) - half), min(half, len(block) - 1)
    if lowest <= preferred <= highest:
        return preferred
    middle = len(block) // 2
    borders = [at for at in range(lowest, highest + 1) if block.words[at - 1] != block.words[at]]
    return min(borders, key=lambda at: abs(at - middle), default=middle)


def _side_by_side(parts: Sequence[Pieces], template: WindowTemplate, key: int) -> PieceSequence:
    segment = template.types[0]
    joined = _control(template.gaps[0])
    last = CONTROL
    for number, part in enumerate(parts):
        if number:
            joined += _control(template.gaps[-1])
        shift = max(0, last + 1 - part.words[0])  # the words of two texts must not share a number
        words = tuple(word + shift for word in part.words)
        joined += Pieces(part.ids, words, part.widths)
        last = words[-1]
    joined += _control(template.gaps[-1])
    types = (segment,) * len(joined)
    return PieceSequence(key, joined.ids, joined.words, joined.widths, types)


def _pair(
    key: int, halves: tuple[Pieces, Pieces], template: WindowTemplate, label: int
) -> PieceSequence:
    joined, types = _control(template.gaps[0]), list(template.gap_types[0])
    last = CONTROL
    for place, part in enumerate(halves):
        shift = max(0, last + 1 - part.words[0])
        words = tuple(word + shift for word in part.words)
        joined += Pieces(part.ids, words, part.widths) + _control(template.gaps[place + 1])
        types += [template.types[place]] * len(part) + [*template.gap_types[place + 1]]
        last = words[-1]
    return PieceSequence(key, joined.ids, joined.words, joined.widths, tuple(types), label)


def _control(ids: tuple[int, ...]) -> Pieces:
    return Pieces(ids, (CONTROL,) * len(ids), (0,) * len(ids))


_LISTS = ("ids", "words", "widths", "types")
_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        *((name, pa.list_(pa.int32())) for name in _LISTS),
        ("next_label", pa.int8()),
    ]
)


def save_sequences(sequences: Sequence[PieceSequence], path: Path) -> None:
    """Writes sequences as Parquet, the form in which training workers load them."""
    columns = {name: [getattr(each, name) for each in sequences] for name in _SCHEMA.names}
    pq.write_table(pa.Table.from_pydict(columns, schema=_SCHEMA), path, compression="zstd")


def load_sequences(path: Path) -> list[PieceSequence]:
    """Reads what `save_sequences` wrote."""
    return [
        PieceSequence(**row | {name: tuple(row[name]) for name in _LISTS})
        for row in pq.read_table(path).to_pylist()
    ]
