"""How many CPUs we may use: affinity and the cgroup's quota, whichever is less."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnxruntime as ort
import pytest

from pipeline.engines import host
from pipeline.engines.host import describe_host, usable_cpus
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("garbage", 8),
        (None, 8),
    ],
)
def test_the_quota_caps_what_affinity_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, cpus: int
) -> None:
    """FAILURES row 23: the host's cores are not ours where a cgroup says so."""
    path = tmp_path / "cpu.max"
    if limit is not None:
        path.write_text(limit + "\n")
    monkeypatch.setattr(host, "_CGROUP_LIMIT", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("NIGHTMILL_CPUS", raising=False)
    assert usable_cpus() == cpus


def test_a_person_may_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTMILL_CPUS", "3")
    assert usable_cpus() == 3
    monkeypatch.setenv("NIGHTMILL_CPUS", "half")
    with pytest.raises(ConfigError, match="NIGHTMILL_CPUS: expected a whole number from 1"):
        usable_cpus()


def test_a_host_is_told_by_what_moves_quantized_scores() -> None:
    """FAILURES row 24: INT8 is trusted on the kind of host it was measured on."""
    found = describe_host()
    assert found.onnxruntime == ort.__version__
    assert set(found.cpu_features) <= {
        "avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp",
    }  # fmt: skip
