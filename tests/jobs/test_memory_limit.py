"""A worker that holds too much ends itself, and only then."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from jobs.memory_limit import OUT_OF_MEMORY_EXIT_CODE, memory_limit, resident_mib

HOARDER = """
from jobs.memory_limit import memory_limit, resident_mib
with memory_limit(resident_mib() + 64):
    held = []
    while True:
        held.append(b"x" * (1 << 20))
"""


def test_failure_01_a_worker_over_its_limit_ends_itself() -> None:
    """Memory that Ray does not see must not reach the kernel's killer."""
    done = subprocess.run([sys.executable, "-c", HOARDER], timeout=60)
    assert done.returncode == OUT_OF_MEMORY_EXIT_CODE


def test_resident_memory_grows_with_what_is_held() -> None:
    before = resident_mib()
    held = b"x" * (64 << 20)
    assert 60 <= resident_mib() - before <= 80
    assert len(held) == 64 << 20


@pytest.mark.parametrize(("held", "ends"), [(101, True), (100, False)])
def test_the_limit_itself_is_allowed(held: int, ends: bool) -> None:
    ended, looked = threading.Event(), threading.Event()

    def resident() -> int:
        looked.set()
        return held

    with memory_limit(100, resident=resident, end=ended.set):
        assert looked.wait(10)
        if ends:
            assert ended.wait(10)
    assert ended.is_set() == ends


def test_no_limit_looks_at_nothing() -> None:
    def never() -> int:
        raise AssertionError

    before = threading.active_count()
    with memory_limit(None, resident=never):
        assert threading.active_count() == before
