"""Rows a second and core: a teacher in `transformers.pipeline` beside bundles in the nightly flow.

All ways read the same texts, one process a core, each pinned to it, in turns; start-up and warm-up
do not count. The pipeline gets the setting that was fastest on a part of the texts, and may also
have all cores for one process.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

# Of the pipeline: windows a batch, whether sorted, whether one process has the whole host.
SETTINGS = tuple(product((4, 8, 16, 32), (False, True), (False, True)))
_TRIAL_TEXTS = 96  # a core
# A pass of a fast model is over before the noise of a shared host evens out.
_LEAST_S = 4.0

_made: dict[str, Any] = {}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Hub:
    """A model in `transformers.pipeline`; `sort` has texts of like length share a batch.

    `dtype` is torch's name of the type that weights and activations are in.
    """

    folder: Path
    max_tokens: int
    rows: int = 32
    sort: bool = False
    whole_host: bool = False
    dtype: str = "float32"

    def __str__(self) -> str:
        order = "sorted by length" if self.sort else "in order of arrival"
        where = "one process on all cores" if self.whole_host else "one process a core"
        return f"batches of {self.rows}, {order}, {where}"

    def build(self) -> Any:
        import torch
        from transformers import pipeline

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return pipeline("text-classification", model=str(self.folder), device="cpu",
                        dtype=getattr(torch, self.dtype))  # fmt: skip

    def go(self, made: Any, texts: list[str]) -> None:
        texts = sorted(texts, key=len) if self.sort else texts
        made(texts, batch_size=self.rows, truncation=True, max_length=self.max_tokens)


@dataclass(frozen=True)
class Night:
    """A bundle in the nightly flow: contract, cleaning, language, windows, engine, answers."""

    folder: Path
    plans: Path
    whole_host = False

    def build(self) -> Any:
        from pipeline.bundle import load_spec, scoring_flow

        return scoring_flow(self.folder, load_spec(self.folder).task, plans=self.plans)

    def go(self, made: Any, texts: list[str]) -> None:
        from pipeline.rows import RawRow

        rows = [RawRow("f", n, {"id": str(n), "text": text}, b"") for n, text in enumerate(texts)]
        outcome = made.score(rows)
        assert outcome.counters.rows_scored == len(texts)
        assert not outcome.texts_remembered


Way = Hub | Night


def pin(cores: list[int]) -> None:
    os.sched_setaffinity(0, set(cores))
    os.environ["OMP_NUM_THREADS"] = str(len(cores))


def calibrate(way: Night) -> str:
    """Measures, on one core, the batch table that the way scores by."""
    from pipeline.bundle import calibrate_host, load_spec

    return str(calibrate_host(way.folder, load_spec(way.folder).task, plans=way.plans))


def get_ready(key: str, way: Way, texts: list[str]) -> None:
    """Builds a way in its process, once, and warms it up."""
    if key not in _made:
        _made[key] = way.build()
        way.go(_made[key], texts[:64])


def go(key: str, way: Way, texts: list[str]) -> float:
    """Texts a second over as many whole passes as take `_LEAST_S` seconds."""
    passes, started = 0, time.perf_counter()
    while (took := time.perf_counter() - started) < _LEAST_S:
        way.go(_made[key], texts)
        passes += 1
    return passes * len(texts) / took


class Host:
    """Processes pinned to a core each, and one that may use all of them."""

    def __init__(self, cores: list[int]) -> None:
        self.cores = len(cores)
        self._each = [self._process([core]) for core in cores]
        self._whole = [self._process(cores)]

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self._each, *self._whole]:
            process.shutdown()

    def rate(self, key: str, way: Way, texts: list[str]) -> float:
        """Rows a second and core, all cores at work at the same time."""
        processes = self._whole if way.whole_host else self._each
        shares = [texts[n :: len(processes)] for n in range(len(processes))]
        self._all(get_ready, processes, key, way, shares)
        return sum(self._all(go, processes, key, way, shares)) / self.cores

    def calibrate(self, way: Night) -> str:
        return self._each[0].submit(calibrate, way).result()

    @staticmethod
    def _process(cores: list[int]) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=pin, initargs=(cores,))

    @staticmethod
    def _all(
        what: Callable[[str, Way, list[str]], Answer],
        processes: list[ProcessPoolExecutor],
        key: str,
        way: Way,
        shares: list[list[str]],
    ) -> list[Answer]:
        running = [
            process.submit(what, key, way, share)
            for process, share in zip(processes, shares, strict=True)
        ]
        return [each.result() for each in running]


def best_setting(host: Host, folder: Path, texts: list[str], *, max_tokens: int, dtype: str) -> Hub:
    """The setting in which the pipeline is fastest on the first texts."""
    texts = texts[: _TRIAL_TEXTS * host.cores]
    rates = {}
    for rows, sort, whole_host in SETTINGS:
        hub = Hub(folder, max_tokens, rows=rows, sort=sort, whole_host=whole_host, dtype=dtype)
        rates[hub] = host.rate(dtype, hub, texts)
        print(f"{dtype}, {hub}: {rates[hub]:.1f} rows/s and core", file=sys.stderr, flush=True)
    return max(rates, key=rates.__getitem__)


def rates_of(
    host: Host, ways: dict[str, Way], texts: list[str], *, rounds: int
) -> dict[str, float]:
    """Rows a second and core of each way, the median of the rounds, in which they take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(host.rate(way.dtype if isinstance(way, Hub) else name, way, texts))
            print(f"{name}: {found[name][-1]:.1f} rows/s and core", file=sys.stderr, flush=True)
    return {name: statistics.median(rates) for name, rates in found.items()}
