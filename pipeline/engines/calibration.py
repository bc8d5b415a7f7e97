"""A second of measuring on the host that scores: does batching pay, and does it keep the bytes.

Kept in a file by kind of host and model, so that the next night knows. The file is safe to delete,
and no score depends on it: a way that moves a bit of a logit is not taken.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.batch_plan import depends_on_neighbours
from pipeline.engines.host import host_kind
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.window import Window
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE
from schemas.calibration import Calibration, Speed
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from schemas.bundle import BundleSpec
    from schemas.task import TaskConfig

    Run = Callable[[Sequence[Window]], npt.NDArray[np.float32]]

log = logging.getLogger(__name__)

_TIMED_LENGTHS = (8, 16, 32, 64, 128, 256)
_CHECKED_LENGTHS = (3, 5, 11, 13, 23, 37)  # kernels have other code for what is left of a tile
_ROWS = (1, 2, 4, 8, 16, 32)
_TOKENS_A_CALL = 256
_ROUNDS = 2
_BUDGET_S = 2.0  # then longer windows, where there is less to gain, stay one a call
# Letters, digits and marks of several scripts: any tokenizer makes different tokens of them.
_TEXT = (
    "The parcel came 3 days late and the invoice was wrong: €24.90! Bitte prüfen Sie die Nr. 7781. "
    "¿Dónde está mi pedido? Le colis n'est jamais arrivé. 荷物が届きません。 Password reset "
    "fails on login; app crashes after update 5.2, error code 0x80. Great service, thank you."
)


def known_calibration(plans: Path, spec: BundleSpec, *, threads: int = 1) -> Calibration | None:
    """What this kind of host has measured of a bundle; none yet, or not readable, is None."""
    host, model = host_kind(), spec.files[MODEL_FILE]
    try:
        found = Calibration.read(_place(plans, host, model, threads))
    except ArtifactError:
        return None
    return found if (found.host, found.model, found.threads) == (host, model, threads) else None


def calibrate(
    folder: Path, spec: BundleSpec, task: TaskConfig, *, plans: Path, threads: int = 1
) -> Calibration:
    """What is known of the bundle in `folder` on this host, measured now if nothing is.

    Raises:
        ArtifactError: the model or its tokenizer cannot be loaded.
    """
    if (known := known_calibration(plans, spec, threads=threads)) is not None:
        return known
    encoder = OnnxEncoder(folder / MODEL_FILE, threads=threads)
    (tokens,) = BackboneTokenizer(folder / TOKENIZER_FILE).tokenize([_TEXT])
    several = not depends_on_neighbours(spec.variant)
    started = time.perf_counter()
    same_bytes, speeds = measure(
        encoder.one_call, tokens.ids, max_tokens=task.window.max_tokens, several=several
    )
    host, model = host_kind(), spec.files[MODEL_FILE]
    found = Calibration(
        host=host, model=model, threads=threads, same_bytes=same_bytes, speeds=speeds
    )
    found.write(_place(plans, host, model, threads))
    log.info("measured this host's batching in %.1f s", time.perf_counter() - started)
    if several and not same_bytes:
        log.info("logits in a batch are not the bytes of one window alone here: one a call")
    return found


def measure(
    run: Run,
    ids: Sequence[int],
    *,
    max_tokens: int,
    several: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[bool, tuple[Speed, ...]]:
    """Whether `run` gives windows the same bytes in any call, and speeds by length and rows.

    Several windows a call are tried from the shortest length up to the first that gains nothing,
    or until two seconds are over: a large model fills the kernels by itself.
    """
    lengths = [n for n in _TIMED_LENGTHS if n <= max_tokens] or [max_tokens]
    run(_windows(ids, lengths[0], 1))  # the first call allocates
    speeds: list[Speed] = []
    same_bytes, longest, until = several, 0, clock() + _BUDGET_S
    for n_tokens in lengths:
        sizes = _sizes(n_tokens) if several else (1,)
        same, measured = _time(run, _windows(ids, n_tokens, sizes[-1]), sizes, clock)
        speeds += measured
        if several:
            same_bytes, longest = same_bytes and same, n_tokens
            gains = max(measured, key=lambda speed: speed.tokens_per_s).rows > 1
            several = same and gains and clock() < until
    others = [n_tokens for n_tokens in _CHECKED_LENGTHS if n_tokens <= longest]
    return same_bytes and _is_same(run, ids, others, clock), tuple(speeds)


def _is_same(
    run: Run, ids: Sequence[int], lengths: Sequence[int], clock: Callable[[], float]
) -> bool:
    checks = ((_windows(ids, n, _sizes(n)[-1]), _sizes(n)) for n in lengths)
    return all(_time(run, windows, sizes, clock)[0] for windows, sizes in checks)


def _time(
    run: Run, windows: Sequence[Window], sizes: Sequence[int], clock: Callable[[], float]
) -> tuple[bool, list[Speed]]:
    """The same windows in calls of each size, in turns; the fastest round counts."""
    best = dict.fromkeys(sizes, float("inf"))
    logits: dict[int, bytes] = {}
    for _ in range(_ROUNDS):
        for rows in sizes:
            calls = [windows[start : start + rows] for start in range(0, len(windows), rows)]
            started = clock()
            outputs = [run(call) for call in calls]
            best[rows] = min(best[rows], clock() - started)
            logits[rows] = np.concatenate(outputs).tobytes()
    n_tokens = windows[0].n_tokens
    tokens = n_tokens * len(windows)
    speeds = [
        Speed(n_tokens=n_tokens, rows=rows, tokens_per_s=round(tokens / seconds, 1))
        for rows, seconds in best.items()
    ]
    return len(set(logits.values())) == 1, speeds


def _sizes(n_tokens: int) -> tuple[int, ...]:
    return tuple(rows for rows in _ROWS if rows == 1 or rows * n_tokens <= _TOKENS_A_CALL)


def _windows(ids: Sequence[int], n_tokens: int, rows: int) -> list[Window]:
    """Different windows of one length: each begins at another token of the text."""
    turned = list(ids) * (1 + (n_tokens + 3 * rows) // len(ids))
    return [
        Window(tuple(turned[3 * row : 3 * row + n_tokens]), (0,) * n_tokens, 0, 0)
        for row in range(rows)
    ]


def _place(plans: Path, host: str, model: str, threads: int) -> Path:
    return plans / f"{model[:16]}-{host[:16]}-{threads}.json"
