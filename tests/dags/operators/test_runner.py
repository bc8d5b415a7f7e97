from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time

import psutil

from dags.operators.runner import SubprocessRunner

# Starts a child that ignores SIGTERM, prints its id, and waits for it.
_STUBBORN_FAMILY = """
import subprocess, sys
code = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(60)"
)
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
# Leaves a child behind that holds the output open.
_ABANDONS_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
"""


def run(code, *, on_line=lambda line: None, grace_s=0.5):
    return SubprocessRunner(grace_s=grace_s).run(
        [sys.executable, "-c", code], environment=os.environ, on_line=on_line
    )


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid, *, limit_s=5.0):
    deadline = time.monotonic() + limit_s
    while is_running(pid) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return not is_running(pid)


def test_lines_arrive_in_order_from_both_streams():
    lines = []
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True)"
    outcome = run(code + "; print('three')", on_line=lines.append)
    assert lines == ["one", "two", "three"]
    assert (outcome.exit_code, outcome.last_error) == (0, "three")


def test_bytes_that_are_not_utf8_do_not_break_the_log():
    lines = []
    run(r"import sys; sys.stdout.buffer.write(b'a\xff\n')", on_line=lines.append)
    assert lines == ["a\ufffd"]


def test_usage_errors_of_the_command_line_are_recognised():
    outcome = run("print('Usage: x'); print('Error: no such option'); raise SystemExit(2)")
    assert (outcome.exit_code, outcome.last_error) == (2, "no such option")


def test_stop_ends_the_childs_child_even_if_it_ignores_sigterm():
    runner = SubprocessRunner(grace_s=0.3)
    lines: queue.Queue[str] = queue.Queue()
    outcomes = []
    command = [sys.executable, "-c", _STUBBORN_FAMILY]
    thread = threading.Thread(
        target=lambda: outcomes.append(
            runner.run(command, environment=os.environ, on_line=lines.put)
        )
    )
    thread.start()
    grandchild = int(lines.get(timeout=20))
    assert is_running(grandchild)

    runner.stop()
    thread.join(timeout=20)

    assert wait_until_gone(grandchild)
    assert outcomes[0].exit_code == -signal.SIGTERM


def test_child_left_behind_does_not_hang_the_task():
    lines = []
    began = time.monotonic()
    outcome = run(_ABANDONS_CHILD, on_line=lines.append)
    assert outcome.exit_code == 0
    assert time.monotonic() - began < 20
    assert wait_until_gone(int(lines[0]))


def test_trouble_while_reading_ends_the_job():
    seen = []

    def fail(line):
        seen.append(int(line))
        raise TimeoutError("task timed out")

    try:
        run(_STUBBORN_FAMILY, on_line=fail, grace_s=0.2)
    except TimeoutError:
        assert wait_until_gone(seen[0])
    else:
        raise AssertionError("the error was swallowed")


def test_job_dies_with_a_task_process_that_is_killed_outright():
    code = (
        "import os, sys; from dags.operators.runner import SubprocessRunner\n"
        "SubprocessRunner().run([sys.executable, '-c', 'import os, time; print(os.getpid(), "
        "flush=True); time.sleep(60)'], environment=os.environ, "
        "on_line=lambda line: print(line, flush=True))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as task:
        job = int(task.stdout.readline())
        task.kill()
    assert sys.platform != "linux" or wait_until_gone(job)
