"""A job that nobody waits for ends itself, with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from jobs.lease import lease_watched
from jobs.options import Context, run_job
from schemas.errors import ConfigError, TransientError
from schemas.home import Home

# A job with a child and a grandchild, both deaf to SIGTERM; it would run for a minute.
ORPHAN = """
import subprocess, sys, time
from pathlib import Path
from jobs.logs import configure_logging
from jobs.options import Context, run_job
from schemas.home import Home

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
INNER = DEAF + "print('up', flush=True); time.sleep(60)"
OUTER = DEAF + (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', %r], "
    "stdout=subprocess.PIPE, start_new_session=True); child.stdout.readline(); "
    "print(child.pid, flush=True); time.sleep(60)" % INNER
)

def work(context):
    child = subprocess.Popen([sys.executable, "-c", OUTER], stdout=subprocess.PIPE, text=True)
    print(child.pid, child.stdout.readline().strip(), flush=True)
    time.sleep(60)
    return {}

configure_logging("work")
sys.exit(run_job(work, Context(Home(Path(sys.argv[1])), Path(sys.argv[2]))))
"""


@pytest.fixture
def lease(tmp_path):
    file = tmp_path / "lease.json"
    file.write_text("0")
    return file


def environment(lease, seconds="0.4"):
    return {"NIGHTMILL_LEASE": str(lease), "NIGHTMILL_LEASE_S": seconds}


def test_lease_that_nobody_renews_ends_the_job_and_says_so(lease, caplog):
    ended = threading.Event()
    began = time.monotonic()
    with lease_watched(environment(lease), end=ended.set):
        assert ended.wait(30)
    assert time.monotonic() - began >= 0.4
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"TransientError: lease {lease} was not renewed for 0 s: nobody waits for this job"
    )


def test_lease_that_is_renewed_keeps_the_job_whatever_the_clocks_say(lease):
    """The owner's clock may be years off: only that the content changes counts."""
    ended = threading.Event()
    with lease_watched(environment(lease, "2"), end=ended.set):
        began = time.monotonic()
        while time.monotonic() - began < 3:
            lease.write_text(f"renewed at {time.monotonic()}")
            os.utime(lease, (1, 1))
            assert not ended.wait(0.1)


@pytest.mark.parametrize("content", [None, "0"], ids=["gone", "rewritten as it was"])
def test_lease_that_says_nothing_new_is_not_renewed(lease, content):
    ended = threading.Event()
    with lease_watched(environment(lease), end=ended.set):
        lease.unlink() if content is None else lease.write_text(content)
        assert ended.wait(30)


def test_job_that_is_done_is_not_ended(lease):
    ended = threading.Event()
    with lease_watched(environment(lease, "0.2"), end=ended.set):
        pass
    assert not ended.wait(0.6)


@pytest.mark.parametrize("variables", [{}, {"NIGHTMILL_LEASE": ""}])
def test_without_a_lease_nothing_is_watched(variables):
    before = threading.active_count()
    with lease_watched(variables, end=lambda: None):
        assert threading.active_count() == before


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "inf", "nan"])
def test_seconds_that_are_none_are_an_error(lease, seconds):
    with (
        pytest.raises(ConfigError, match=f"NIGHTMILL_LEASE_S: expected a positive .* '{seconds}'"),
        lease_watched(environment(lease, seconds), end=lambda: None),
    ):
        pass


def test_a_job_with_bad_seconds_ends_as_a_configuration_error(lease, monkeypatch, tmp_path):
    for name, value in environment(lease, "soon").items():
        monkeypatch.setenv(name, value)
    assert run_job(lambda context: {}, Context(Home(tmp_path))) == ConfigError.exit_code


@pytest.mark.slow
def test_failure_13_an_orphan_ends_with_its_children(lease, tmp_path):
    """Whoever would have stopped it is gone: the lease is the last defence."""
    result = tmp_path / "result.json"
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path), str(result)],
        env={**os.environ, **environment(lease, "1"), "NIGHTMILL_LOG_FORMAT": "text"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        renewing = threading.Event()
        renewer = threading.Thread(target=renew, args=(lease, renewing))
        renewer.start()
        family = [int(pid) for pid in job.stdout.readline().split()]
        renewing.set()
        renewer.join()
        _, errors = job.communicate(timeout=60)
    assert job.returncode == TransientError.exit_code
    assert "nobody waits for this job any more" in errors
    assert len(family) == 2
    assert [pid for pid in family if is_running(pid)] == []
    assert not result.exists()


def renew(lease, left):
    while not left.wait(0.1):
        lease.write_text(str(time.monotonic()))


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
