"""What of this host decides speed and trust: CPUs we may use, and instruction sets."""

from __future__ import annotations

import os
from pathlib import Path

import onnxruntime as ort

from schemas.bundle import Host
from schemas.errors import ConfigError

_TELLING = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp")
CPUS_VARIABLE = "NIGHTMILL_CPUS"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus() -> int:
    """CPUs to plan with: `NIGHTMILL_CPUS`, else affinity and the cgroup's quota, the lesser.

    Raises:
        ConfigError: `NIGHTMILL_CPUS` is not a whole number of at least 1.
    """
    if asked := os.environ.get(CPUS_VARIABLE):
        if not asked.isdecimal() or int(asked) < 1:
            raise ConfigError(f"{CPUS_VARIABLE}: expected a whole number from 1, got {asked!r}")
        return int(asked)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CGROUP_LIMIT.read_text().split()
    except (OSError, ValueError):
        return cpus
    if quota == "max":
        return cpus
    return max(1, min(cpus, int(quota) // int(period)))


def describe_host() -> Host:
    """CPU features that quantized kernels depend on, and the runtime's version."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    features = tuple(name for name in _TELLING if name in flags)
    return Host(cpu_features=features, onnxruntime=ort.__version__)
