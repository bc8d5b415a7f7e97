from __future__ import annotations

from jobs.step_metrics import tell_metrics
from schemas.errors import ConfigError


def with_file(task, name):
    score = task.score.model_copy(update={"metrics_file": name})
    return task.model_copy(update={"score": score})


def test_a_step_writes_beside_the_night(tiny_task, home):
    told = []
    tell_metrics(with_file(tiny_task, "metrics/tiny.prom"), home, "monitor", told.append)
    assert told == [home.root / "metrics/tiny.monitor.prom"]


def test_nothing_is_written_where_nobody_asks(tiny_task, home):
    told = []
    tell_metrics(with_file(tiny_task, None), home, "monitor", told.append)
    assert told == []


def test_a_file_that_cannot_be_written_is_a_warning(tiny_task, home, caplog):
    def write(path):
        raise ConfigError(f"metrics file {path.name} cannot be written")

    tell_metrics(with_file(tiny_task, "metrics/tiny.prom"), home, "training", write)
    assert "tiny.training.prom cannot be written" in caplog.text
