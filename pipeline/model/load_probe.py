"""A process that only loads models, and tells of each how long it took and what it held at most.

What it imports is ready before the first model; each is loaded in a fork, without the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pipeline.engines.memory import peak_rss_mib
from pipeline.engines.onnx_session import OnnxEncoder
from schemas.errors import ArtifactError


def main() -> None:
    """Loads the models that the arguments name; for each a line of JSON on standard output.

    Of a model that cannot be loaded the line is empty.
    """
    for path in sys.argv[1:]:
        if not (child := os.fork()):
            code = 1
            try:
                code = _tell(Path(path))
            finally:
                os._exit(code)  # a fork that ends as programs do waits for threads it does not have
        if os.waitpid(child, 0)[1]:
            sys.stdout.write("\n")
            sys.stdout.flush()


def _tell(path: Path) -> int:
    """Writes the line of one model; answers the exit code of its process."""
    started = time.perf_counter()
    try:
        OnnxEncoder(path)
    except ArtifactError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        return 1
    load_ms = (time.perf_counter() - started) * 1e3
    found = {"load_ms": round(load_ms, 1), "resident_mib": float(peak_rss_mib())}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    return 0
