"""What variants weigh and how fast they are on this host.

Loading is measured in processes of its own, which do nothing else: the memory that a worker takes
before its first row cannot be told apart in a process that has trained the model.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.gate_checks import at_least, at_most
from pipeline.model.model_file import model_files
from schemas.bundle import VariantFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.window import Window
    from schemas.bundle import GateResult
    from schemas.task import CompressConfig, Variant

COST_GATES = ("file_mb", "speedup")
_WINDOWS = 64
_ROUNDS = 2
_BUDGET_S = 1.0  # a round over long windows or a large model stops there
_LOAD_TIMEOUT_S = 120
# Quoted so that it runs wherever this process could import itself from.
_LOADING = "import sys; sys.path[:] = {path!r}; from pipeline.model.load_probe import main; main()"
log = logging.getLogger(__name__)


def measure_facts(
    files: Mapping[Variant, Path], windows: Sequence[Window]
) -> dict[Variant, VariantFacts]:
    """Facts of each variant on the first 64 `windows`, one a call on one thread.

    Variants take turns, so that a host which is busy for a while slows all of them; the faster of
    two rounds counts.
    """
    windows = windows[:_WINDOWS]
    encoders = {variant: OnnxEncoder(path) for variant, path in files.items()}
    rounds: dict[Variant, list[list[float]]] = {variant: [] for variant in files}
    for encoder in encoders.values():
        encoder.logits(windows[:1])  # the first call allocates
    for _ in range(_ROUNDS):
        for variant, encoder in encoders.items():
            rounds[variant].append(_seconds_by_window(encoder, windows))
    # All over the same windows: as many as the slowest got through.
    count = min(len(seconds) for turns in rounds.values() for seconds in turns)
    loading = _loading(list(files.values()))
    return {
        variant: _facts(
            path, [seconds[:count] for seconds in rounds[variant]], loading.get(path, {})
        )
        for variant, path in files.items()
    }


def facts_gates(facts: Mapping[Variant, VariantFacts], config: CompressConfig) -> list[GateResult]:
    """Gates on size and speed, where the task has set them; FP32 needs be no faster than itself."""
    gates = []
    for variant, found in facts.items():
        if config.max_file_mb is not None:
            gates.append(at_most(variant, "file_mb", found.megabytes, config.max_file_mb))
        if config.min_speedup is not None and variant != "fp32":
            speedup = found.windows_per_s / facts["fp32"].windows_per_s
            gates.append(at_least(variant, "speedup", speedup, config.min_speedup))
    return gates


def _seconds_by_window(encoder: OnnxEncoder, windows: Sequence[Window]) -> list[float]:
    seconds: list[float] = []
    started = time.perf_counter()
    for window in windows:
        before = time.perf_counter()
        encoder.logits([window])
        seconds.append(time.perf_counter() - before)
        if time.perf_counter() - started > _BUDGET_S:
            break
    return seconds


def _facts(
    path: Path, turns: Sequence[Sequence[float]], loading: Mapping[str, Any]
) -> VariantFacts:
    best = min(turns, key=sum)
    return VariantFacts(
        megabytes=file_megabytes(path),
        windows_per_s=len(best) / sum(best),
        p95_ms=float(np.quantile(best, 0.95)) * 1e3,
        **loading,
    )


def file_megabytes(path: Path) -> float:
    """Megabytes (10^6 bytes) of a model, the weights beside it included."""
    return sum(file.stat().st_size for file in model_files(path)) / 1e6


def _loading(paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """What a process that only loads models has measured of each; nothing where it could not."""
    code = _LOADING.format(path=sys.path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, paths)],
            capture_output=True, text=True, check=True, timeout=_LOAD_TIMEOUT_S * len(paths),
        )  # fmt: skip
        lines = done.stdout.splitlines()
        found = dict(zip(paths, [json.loads(line or "{}") for line in lines], strict=True))
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        log.warning("loading %s could not be measured: %s", _names(paths), error)
        return {path: {} for path in paths}
    if failed := [path for path, measured in found.items() if not measured]:
        log.warning("loading %s could not be measured: %s", _names(failed), done.stderr[-500:])
    return found


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
