"""How many CPUs we may use, and what of a processor decides the numbers it gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnxruntime as ort
import pytest

from pipeline.engines import host
from pipeline.engines.host import (
    computes_in_bf16,
    describe_host,
    host_kind,
    this_host,
    usable_cpus,
)
from schemas.bundle import Host
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ZEN4 = "model name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_vnni sse2\n"
HASWELL = "model name\t: Intel Xeon E5\nflags\t\t: fpu avx2 sse2\n"
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU part\t: 0xd0c\n"


@pytest.fixture
def eight_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of eight CPUs whose cgroup files lie below the folder; version 2, at the root."""
    membership = tmp_path / "self"
    membership.write_text("0::/\n")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path)
    monkeypatch.setattr(host, "_MEMBERSHIP", membership)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("NIGHTMILL_CPUS", raising=False)
    return tmp_path


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(host, "_CPUINFO", path)
    return path


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("200000 0", 8),
        ("garbage", 8),
        (None, 8),
    ],
)
def test_failure_23_the_quota_caps_what_affinity_allows(
    eight_cpus: Path, limit: str | None, cpus: int
) -> None:
    """The host's cores are not ours where a cgroup says so."""
    if limit is not None:
        (eight_cpus / "cpu.max").write_text(limit + "\n")
    assert usable_cpus() == cpus


def test_failure_23_the_tightest_quota_on_the_way_up_holds(eight_cpus: Path) -> None:
    own = eight_cpus / "kubepods" / "pod7" / "box"
    own.mkdir(parents=True)
    (eight_cpus / "self").write_text("0::/kubepods/pod7/box\n")
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text("300000 100000\n")
    (own.parents[1] / "cpu.max").write_text("600000 100000\n")
    assert usable_cpus() == 3


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("250000", 2), ("0", 8)])
def test_failure_23_cgroups_of_version_1_count_as_well(
    eight_cpus: Path, quota: str, cpus: int
) -> None:
    (eight_cpus / "self").write_text("4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n")
    own = eight_cpus / "cpu" / "box"
    own.mkdir(parents=True)
    (own / "cpu.cfs_quota_us").write_text(quota + "\n")
    (own / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus() == cpus


def test_failure_23_inside_a_container_the_hosts_path_is_not_there(eight_cpus: Path) -> None:
    (eight_cpus / "self").write_text("0::/docker/4f3a\n")
    (eight_cpus / "cpu.max").write_text("200000 100000\n")
    assert usable_cpus() == 2


def test_failure_23_a_cpuset_is_part_of_the_affinity(
    eight_cpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (eight_cpus / "cpu.max").write_text("600000 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 6})
    assert usable_cpus() == 3


def test_a_host_without_cgroups_has_its_affinity(
    eight_cpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_MEMBERSHIP", eight_cpus / "none")
    assert usable_cpus() == 8


def test_a_person_may_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTMILL_CPUS", "3")
    assert usable_cpus() == 3
    monkeypatch.setenv("NIGHTMILL_CPUS", "half")
    with pytest.raises(ConfigError, match="NIGHTMILL_CPUS: expected a whole number from 1"):
        usable_cpus()


@pytest.mark.parametrize(
    ("text", "features"),
    [
        (ZEN4, ("avx2", "avx512f", "avx512_vnni")),
        (HASWELL, ("avx2",)),
        (GRAVITON, ("asimddp",)),
        ("bugs\t\t: avx512_vnni\n", ()),  # a word elsewhere is no instruction set
    ],
)
def test_failure_24_instruction_sets_are_read_from_the_flags(
    cpuinfo: Path, text: str, features: tuple[str, ...]
) -> None:
    cpuinfo.write_text(text * 2)  # each core has its lines
    found = describe_host()
    assert found == Host(cpu_features=features, onnxruntime=ort.__version__)


def test_this_host_is_known_by_its_features_and_by_its_kind(cpuinfo: Path) -> None:
    cpuinfo.write_text(HASWELL)
    found = this_host()
    assert (found.host.cpu_features, found.kind) == (("avx2",), host_kind())
    cpuinfo.write_text(ZEN4)
    assert this_host().kind != found.kind


@pytest.mark.parametrize(
    ("flags", "has_it"),
    [("avx2 avx512_bf16", True), ("amx_bf16", True), ("avx2 avx512f avx512_vnni", False)],
)
def test_bf16_is_read_from_the_flags(cpuinfo: Path, flags: str, has_it: bool) -> None:
    cpuinfo.write_text(f"model name\t: A CPU\nflags\t\t: {flags}\n")
    assert computes_in_bf16() is has_it


def test_a_kind_of_host_is_its_processor_not_its_number_of_cores(cpuinfo: Path) -> None:
    cpuinfo.write_text(ZEN4 * 2)
    two = host_kind()
    cpuinfo.write_text(ZEN4 * 64 + "cpu MHz\t\t: 2600.000\n")
    assert host_kind() == two
    cpuinfo.write_text(HASWELL)
    assert host_kind() != two


def test_a_host_without_cpuinfo_has_a_kind(cpuinfo: Path) -> None:
    assert not cpuinfo.exists()
    assert describe_host().cpu_features == ()
    assert len(host_kind()) == 64
