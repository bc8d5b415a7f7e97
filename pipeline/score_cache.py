"""Answers kept from night to night and from shard to shard, by text and by model.

A folder of segments (`KEY/date=D/…`) holds the answers of one model; nothing in it is ever needed,
so that it may be deleted, cut off or lost at any time.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.score_segments import (
    KEYS_SUFFIX,
    keys_of,
    read_keys,
    read_segment,
    write_segment,
)
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.flow import Prepared
    from pipeline.heads import HeadSlice
    from pipeline.inference import Inference, Inferred
    from schemas.bundle import Host

ANSWER_VERSION = 1  # raise it when the same model would answer the same text in another way

log = logging.getLogger(__name__)


def cache_key(bundle_digest: str, *, device: str, host: Host) -> str:
    """Names the answers that stand for one another to the byte.

    Quantized kernels differ between instruction sets, and kernels between versions of the runtime.
    """
    parts = [ANSWER_VERSION, bundle_digest, device, host.model_dump(mode="json")]
    return digest_of(parts)[:32]


class ScoreCache:
    """The answers that one model gave before; in memory are 12 bytes of each.

    A missing or damaged file only means that its texts are inferred again.
    """

    def __init__(
        self, folder: Path, heads: tuple[HeadSlice, ...], *, night: str, max_bytes: int
    ) -> None:
        self._folder = folder
        self._tonight = folder / f"date={night}"
        self._heads = heads
        self._max_bytes = max_bytes
        self._segments: list[Path] = []
        self._known: set[Path] = set()
        # Sorted keys and the segment of each; a block for each time that new segments were found.
        self._blocks: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]] = []

    def find(self, hashes: Sequence[str]) -> dict[str, Inferred]:
        """The answers that are there, by text hash; other workers' newest ones among them."""
        self._look_for_new_segments()
        keys = keys_of(hashes)
        found: dict[str, Inferred] = {}
        for sorted_keys, segment_of_key in self._blocks:
            places = np.searchsorted(sorted_keys, keys)
            places[places == len(sorted_keys)] = 0
            by_segment: dict[int, set[str]] = {}
            for index in np.flatnonzero(sorted_keys[places] == keys).tolist():
                if hashes[index] not in found:
                    segment = int(segment_of_key[places[index]])
                    by_segment.setdefault(segment, set()).add(hashes[index])
            for segment, wanted in by_segment.items():
                found |= read_segment(self._segments[segment], wanted, self._heads)
        return found

    def keep(self, answers: Mapping[str, Inferred]) -> None:
        """Adds answers as a segment of the night; a disk that is full costs only the saving."""
        if sum(_size(path) for path in self._tonight.glob("*")) >= self._max_bytes:
            return
        try:
            write_segment(self._tonight, answers, self._heads)
        except OSError as error:
            log.warning("%d answers cannot be kept in %s: %s", len(answers), self._tonight, error)

    def _look_for_new_segments(self) -> None:
        found = set(self._folder.glob(f"date=*/*{KEYS_SUFFIX}")) - self._known
        if not found:
            return
        self._known |= found
        new = sorted(found)
        keys = [read_keys(path) for path in new]
        first = len(self._segments)
        segments = np.repeat(np.arange(first, first + len(new), dtype=np.int32), [*map(len, keys)])
        self._segments += new
        together = np.concatenate(keys)
        if len(together):
            order = np.argsort(together, kind="stable")
            self._blocks.append((together[order], segments[order]))


class CachedInference:
    """An inference with a memory: what the model behind it has answered before is not asked again.

    Whether an answer is remembered or given now, it is the same, the work that it takes included.
    """

    def __init__(self, inference: Inference, cache: ScoreCache) -> None:
        self._inference = inference
        self._cache = cache

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        """One for each item, in order."""
        found = self._cache.find([item.text_hash for item in items])
        rest = [item for item in items if item.text_hash not in found]
        if rest:
            hashes = [item.text_hash for item in rest]
            fresh = dict(zip(hashes, self._inference.infer(rest), strict=True))
            if sound := {name: inferred for name, inferred in fresh.items() if inferred.answers}:
                self._cache.keep(sound)
            found |= fresh
        return [found[item.text_hash] for item in items]


def trim(folder: Path, *, max_bytes: int) -> int:
    """Removes segments of all models in `folder`, oldest date first, down to a size; bytes left."""
    files = sorted(folder.glob("*/date=*/*"), key=lambda path: (path.parent.name, path))
    left = sum(_size(path) for path in files)
    for path in files:
        if left <= max_bytes:
            break
        left -= _size(path)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # other segments, or another driver's removal
            path.parent.rmdir()
    return left


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
