"""A session that begins in the background: waited for, or ended unused."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import date as Date

import pytest

from jobs import ray_ahead as module
from jobs.ray_ahead import RayAhead, ray_ahead
from pipeline.publish import MANIFEST_FILE
from schemas.errors import TransientError

DAY = Date(2026, 11, 20)


class Sessions:
    """Counts what was opened and closed; opening waits for `may_open`."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.may_open = threading.Event()
        self.may_open.set()

    @contextmanager
    def __call__(self):
        assert self.may_open.wait(30)
        self.opened += 1
        yield
        self.closed += 1


def test_it_starts_while_something_else_is_done():
    sessions = Sessions()
    sessions.may_open.clear()
    with RayAhead(sessions) as ray:
        ray.begin()  # returns though the session cannot open yet
        assert sessions.opened == 0
        sessions.may_open.set()
        ray.wait()
        ray.wait()
        assert (sessions.opened, sessions.closed) == (1, 0)
    assert (sessions.opened, sessions.closed) == (1, 1)


def test_the_thread_that_started_it_outlives_it():
    """Ray asks the kernel to end its processes with the thread that made them."""
    starters = []
    alive_at_the_end = []

    @contextmanager
    def session():
        starters.append(threading.current_thread())
        yield
        alive_at_the_end.append(starters[0].is_alive())

    with RayAhead(session) as ray:
        ray.wait()
    assert alive_at_the_end == [True]
    assert not starters[0].is_alive()


def test_one_that_nothing_needed_is_ended_all_the_same():
    sessions = Sessions()
    with RayAhead(sessions) as ray:
        ray.begin()
    assert (sessions.opened, sessions.closed) == (1, 1)


def test_one_that_never_began_costs_nothing():
    sessions = Sessions()
    with RayAhead(sessions):
        pass
    assert sessions.opened == 0


def test_trouble_counts_only_where_it_is_waited_for():
    @contextmanager
    def broken():
        raise TransientError("no cluster")
        yield

    with RayAhead(broken) as ray:
        ray.begin()
    with pytest.raises(TransientError, match="no cluster"), RayAhead(broken) as ray:
        ray.wait()


@pytest.mark.parametrize(
    ("model", "input_is_there", "is_published", "begins"),
    [
        (None, True, False, True),
        ("path:bundle", True, False, False),  # read at once: nothing to do in the meantime
        (None, False, False, False),
        (None, True, True, False),
    ],
)
def test_it_begins_by_itself_where_there_is_sure_to_be_work(
    home, tiny_task, write_night, monkeypatch, model, input_is_there, is_published, begins
):
    sessions = Sessions()
    monkeypatch.setattr(module, "_session_of", lambda score: sessions())
    score = tiny_task.score.model_copy(update={"model": model})
    if input_is_there:
        write_night(home, DAY.isoformat(), rows=10)
    if is_published:
        folder = home.scores("tiny") / f"date={DAY}"
        folder.mkdir(parents=True)
        (folder / MANIFEST_FILE).write_text("{}")
    with ray_ahead(tiny_task.model_copy(update={"score": score}), [DAY], home=home):
        pass
    assert sessions.opened == sessions.closed == int(begins)
