"""Metrics of the steps around the night, beside the night's own `score.metrics_file`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.home import Home
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


def tell_metrics(task: TaskConfig, home: Home, step: str, write: Callable[[Path], None]) -> None:
    """Writes `NAME.STEP.prom` beside `NAME.prom`, where one is asked for; never ends the step."""
    if task.score.metrics_file is None:
        return
    path = home.resolve(task.score.metrics_file)
    try:
        write(path.with_name(f"{path.stem}.{step}{path.suffix}"))
    except ConfigError as error:
        log.warning("%s", error)
