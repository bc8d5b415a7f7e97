"""A process that only loads a model, and tells how long it took and what it held at most."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pipeline.engines.memory import peak_rss_mib
from pipeline.engines.onnx_session import OnnxEncoder


def main() -> None:
    """Loads the model that the first argument names; one line of JSON on standard output."""
    started = time.perf_counter()
    OnnxEncoder(Path(sys.argv[1]))
    load_ms = (time.perf_counter() - started) * 1e3
    found = {"load_ms": round(load_ms, 1), "resident_mib": float(peak_rss_mib())}
    sys.stdout.write(json.dumps(found) + "\n")
