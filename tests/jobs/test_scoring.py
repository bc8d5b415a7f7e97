"""Shards over Ray Data's pool of workers."""

from __future__ import annotations

import datetime as dt
import os

import pytest

import jobs.scoring
from jobs.ray_session import ray_session
from jobs.scoring import ShardTask, score_shards
from schemas.manifest import ModelRef, Shard


@pytest.mark.slow
def test_each_of_two_workers_gets_one_of_two_shards(tiny_task, tmp_path, monkeypatch):
    """Either shard waits for the other: one worker that took both would wait for ever."""
    meeting = tmp_path / "meeting"
    os.mkfifo(meeting)

    class Meeting:
        def __init__(self, *_):
            pass

        def __call__(self, row):
            index = ShardTask.from_row(row).shard.index
            # A named pipe opens for the one side when the other side opens it too.
            with open(meeting, "rb" if index else "wb"):
                return {"index": index}

    monkeypatch.setattr(jobs.scoring, "ShardWorker", Meeting)
    shards = [
        Shard(index=i, name="a", path="a", format="csv", start=0, stop=1, first_row=i, rows=1)
        for i in range(2)
    ]
    work = [ShardTask(shard, tmp_path / "run", dt.date(2026, 11, 28), "run") for shard in shards]
    task = tiny_task.model_copy(
        update={"score": tiny_task.score.model_copy(update={"no_progress_timeout_s": 60})}
    )
    model = ModelRef(name="tiny", version="1", digest="0")
    with ray_session(cpus=2):
        answers = score_shards(
            work, bundle=tmp_path, task=task, model=model, cleaner_version="2", workers=2
        )
        assert sorted(answer["index"] for answer in answers) == [0, 1]
