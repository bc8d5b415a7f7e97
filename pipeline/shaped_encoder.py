"""Logits in batches of fixed shapes, and the proof that a window's bytes do not depend on them."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.ahead import ahead
from pipeline.token_batches import Budget, Shape, halvings, padding_share, token_batches
from pipeline.window import Window
from schemas.errors import ArtifactError, ConfigError, ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.token_batches import TokenBatch

Inputs = dict[str, npt.NDArray[np.int64]]
Logits = npt.NDArray[np.float32]

log = logging.getLogger(__name__)


class OutOfDeviceMemoryError(Exception):
    """A batch does not fit into the device's memory now."""


class ShapedSession(Protocol):
    """A model on a device."""

    n_logits: int

    def run(self, inputs: Inputs) -> Logits:
        """Logits `(B, L)` of a padded batch `(B, T)`; may raise `OutOfDeviceMemoryError`."""


class ShapedEncoder:
    """An `Encoder` for devices whose kernels follow the shape of a batch.

    A window always runs in the one full shape of its width, short batches filled up, so that its
    neighbours cannot move a bit of its score. That this is so is shown on the device itself before
    the first window: a smaller shape is used only if it gave the same bytes.

    Raises:
        ArtifactError: scores depend on neighbours there, or are not finite.
        ConfigError: a full batch does not fit into the device's memory.
    """

    def __init__(
        self, session: ShapedSession, budget: Budget, *, pad_id: int, vocabulary_size: int
    ) -> None:
        self._session = session
        self._budget = budget
        self._pad_id = pad_id
        self._smaller: dict[int, tuple[int, ...]] = {}
        chooser = np.random.default_rng(0)
        for shape in budget.shapes():
            probes = _probes(shape, chooser, vocabulary_size=vocabulary_size)
            self._smaller[shape.width] = self._prove(shape, probes)
        self.tokens = self.computed_tokens = 0

    @property
    def padding_share(self) -> float:
        """Padding as a share of all that was computed so far."""
        return 1 - self.tokens / self.computed_tokens if self.computed_tokens else 0.0

    def logits(self, windows: Sequence[Window]) -> Logits:
        """Logits `(W, L)`, in the order of `windows`; inputs are padded one batch ahead.

        Raises:
            ShardError: not even the smallest batch fits into the device's memory.
        """
        lengths = [window.n_tokens for window in windows]
        batches = token_batches(lengths, self._budget, smaller=self._smaller)
        logits = np.empty((len(windows), self._session.n_logits), dtype=np.float32)
        for batch, inputs in ahead(self._padded(batches, windows)):
            logits[list(batch.indices)] = self._run(inputs, len(batch.indices))
        self._count(batches, lengths)
        return logits

    def _padded(
        self, batches: Sequence[TokenBatch], windows: Sequence[Window]
    ) -> Iterator[tuple[TokenBatch, Inputs]]:
        for batch in batches:
            chosen = [windows[index] for index in batch.indices]
            yield batch, shape_inputs(chosen, batch.shape, pad_id=self._pad_id)

    def _run(self, inputs: Inputs, count: int) -> Logits:
        """Logits of the first `count` rows; in pieces where the device has no memory for all."""
        rows, width = inputs["input_ids"].shape
        try:
            return self._session.run(inputs)[:count]
        except OutOfDeviceMemoryError as error:
            fewer = next((n for n in self._smaller.get(width, ()) if n < rows), None)
            if fewer is None:
                raise ShardError(
                    f"{rows} windows of {width} tokens do not fit into the GPU's memory, and no "
                    f"smaller batch gives the same scores there; run again when the GPU is free, "
                    f"or lower score.max_batch_tokens ({self._budget.max_batch_tokens}): {error}"
                ) from error
        log.warning("GPU out of memory: %d x %d tokens, trying %d rows", rows, width, fewer)
        return np.concatenate(
            [
                self._run(
                    _piece(inputs, start, fewer, pad_id=self._pad_id), min(fewer, count - start)
                )
                for start in range(0, count, fewer)
            ]
        )

    def _prove(self, shape: Shape, probes: list[Window]) -> tuple[int, ...]:
        """Smaller row counts, most first, that give the bytes of the full shape.

        Windows stand in turned order, then the first and the last of them among empty rows.
        """
        expected = self._probe(probes, shape)
        turned = np.roll(self._probe(probes[1:] + probes[:1], shape), 1, axis=0)
        few = max(1, shape.rows // 3)
        first, last = self._probe(probes[:few], shape), self._probe(probes[-few:], shape)
        if not np.isfinite(expected).all():
            raise ArtifactError(
                f"the model gives NaN or infinity on the GPU for windows of {shape.width} tokens; "
                f"take a variant of more precision, compress.prefer=[fp32]"
            )
        if not (
            _same(turned, expected)
            and _same(first, expected[:few])
            and _same(last, expected[-few:])
        ):
            raise ArtifactError(
                f"scores on this GPU depend on a window's neighbours ({shape.rows} windows of "
                f"{shape.width} tokens): take another variant, compress.prefer=[fp16, fp32], or "
                f"score.device=cpu"
            )
        return tuple(
            rows
            for rows in halvings(shape.rows)
            if _same(self._probe(probes[:rows], Shape(rows, shape.width)), expected[:rows])
        )

    def _probe(self, windows: Sequence[Window], shape: Shape) -> Logits:
        try:
            inputs = shape_inputs(windows, shape, pad_id=self._pad_id)
            return self._session.run(inputs)[: len(windows)]
        except OutOfDeviceMemoryError as error:
            raise ConfigError(
                f"a batch of {shape.rows} windows of {shape.width} tokens does not fit into the "
                f"GPU's memory; lower score.max_batch_tokens ({self._budget.max_batch_tokens}) or "
                f"score.workers, which share the GPU: {error}"
            ) from error

    def _count(self, batches: Sequence[TokenBatch], lengths: Sequence[int]) -> None:
        self.tokens += sum(lengths)
        self.computed_tokens += sum(batch.shape.tokens for batch in batches)
        log.debug("%d batches, padding %.3f", len(batches), padding_share(batches, lengths))


def shape_inputs(windows: Sequence[Window], shape: Shape, *, pad_id: int) -> Inputs:
    """Arrays `(B, T)` of ids, mask and segment ids, padded on the right to exactly `shape`.

    A row without a window holds one unmasked token: fully masked rows make attention divide by 0.
    """
    lengths = np.ones(shape.rows, dtype=np.int64)
    lengths[: len(windows)] = [window.n_tokens for window in windows]
    real = np.arange(shape.width) < lengths[:, None]
    filler = [pad_id] * (shape.rows - len(windows))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    types = np.zeros(shape, dtype=np.int64)
    ids = chain(chain.from_iterable(window.input_ids for window in windows), filler)
    input_ids[real] = np.fromiter(ids, dtype=np.int64, count=int(lengths.sum()))
    segments = chain(chain.from_iterable(window.type_ids for window in windows), [0] * len(filler))
    types[real] = np.fromiter(segments, dtype=np.int64, count=int(lengths.sum()))
    return {
        "input_ids": input_ids,
        "attention_mask": real.astype(np.int64),
        "token_type_ids": types,
    }


def _piece(inputs: Inputs, start: int, rows: int, *, pad_id: int) -> Inputs:
    """`rows` rows from `start`, filled up where the batch ends before."""
    width = inputs["input_ids"].shape[1]
    piece = shape_inputs([], Shape(rows, width), pad_id=pad_id)
    for name, array in inputs.items():
        part = array[start : start + rows]
        piece[name][: len(part)] = part
    return piece


def _probes(shape: Shape, chooser: np.random.Generator, *, vocabulary_size: int) -> list[Window]:
    """Windows of random ids, as many as the shape has rows, from half to the whole of its width."""
    lengths = chooser.integers(
        max(1, shape.width // 2), shape.width, size=shape.rows, endpoint=True
    )
    return [
        Window(tuple(chooser.integers(vocabulary_size, size=length).tolist()), (0,) * length, 0, 0)
        for length in lengths.tolist()
    ]


def _same(mine: Logits, theirs: Logits) -> bool:
    """Equal bit by bit."""
    return mine.tobytes() == theirs.tobytes()
