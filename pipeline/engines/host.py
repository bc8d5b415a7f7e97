"""What of this host decides speed and trust: CPUs we may use, and instruction sets."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime as ort

from schemas.bundle import Host
from schemas.errors import ConfigError
from schemas.fingerprint import digest_of
from schemas.verification import KindOfHost

if TYPE_CHECKING:
    from collections.abc import Iterator

_VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one on ARM
_TELLING = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp")
CPUS_VARIABLE = "NIGHTMILL_CPUS"
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_CPUINFO = Path("/proc/cpuinfo")
# What kernels are chosen by, on x86 and on ARM.
_PROCESSOR_KEYS = ("model name", "flags", "Features", "CPU implementer", "CPU part")


def usable_cpus() -> int:
    """CPUs to plan with: `NIGHTMILL_CPUS`, else affinity and the cgroup's quota, the lesser.

    A cpuset is part of the affinity. A quota of one and a half CPUs counts as one: a second thread
    would be stopped for half of its time.

    Raises:
        ConfigError: `NIGHTMILL_CPUS` is not a whole number of at least 1.
    """
    if asked := os.environ.get(CPUS_VARIABLE):
        if not asked.isdecimal() or int(asked) < 1:
            raise ConfigError(f"{CPUS_VARIABLE}: expected a whole number from 1, got {asked!r}")
        return int(asked)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cpus, *_quotas()])))


def _quotas() -> Iterator[float]:
    """CPUs of each quota that holds for this process: its own cgroup's and those above it."""
    for controllers, path in _memberships():
        # Version 2 has one tree and names no controllers; version 1 has a tree of its own for CPUs.
        trees = (_CGROUPS, _CGROUPS / "unified") if not controllers else (_CGROUPS / "cpu",)
        for tree in trees:
            # Inside a container the path may be the host's; then only the tree's root is there.
            for folder in (tree / path, *(tree / path).parents):
                if (quota := _quota(folder)) is not None:
                    yield quota
                if folder == tree:
                    break


def _memberships() -> Iterator[tuple[set[str], str]]:
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, names, path = line.split(":", 2)
        controllers = set(names.split(",")) - {""}
        if not controllers or "cpu" in controllers:
            yield controllers, path.lstrip("/")


def _quota(folder: Path) -> float | None:
    """CPUs that a cgroup's folder allows; None where it says nothing or no limit."""
    try:
        if (limit := folder / "cpu.max").exists():
            quota, period = limit.read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # `max` is no number, and no limit
        return None


def describe_host() -> Host:
    """CPU features that quantized kernels depend on, and the runtime's version."""
    flags = {flag for _, value in _processor() for flag in value.split()}
    features = tuple(name for name in _TELLING if name in flags)
    return Host(cpu_features=features, onnxruntime=ort.__version__)


def has_vnni() -> bool:
    """Whether INT8 products are added up in 32 bits in one instruction, so that none overflows."""
    return not _VNNI.isdisjoint(describe_host().cpu_features)


def computes_in_bf16() -> bool:
    """Whether products of bf16 numbers are instructions of this processor."""
    flags = {flag for _, value in _processor() for flag in value.split()}
    return not _BF16.isdisjoint(flags)


def host_kind() -> str:
    """Digest of what the kernels are chosen by: processor, its instruction sets, the runtime."""
    return digest_of([platform.machine(), ort.__version__, *_processor()])


def this_host() -> KindOfHost:
    """The host of this process, as bundles are verified by."""
    return KindOfHost(host=describe_host(), kind=host_kind())


def _processor() -> list[tuple[str, str]]:
    """Name and flags of the processors, each once, sorted."""
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return []
    pairs = [tuple(part.strip() for part in line.partition(":")[::2]) for line in lines]
    return sorted({(key, value) for key, value in pairs if key in _PROCESSOR_KEYS})
