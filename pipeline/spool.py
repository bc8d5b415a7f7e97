"""Plain copies of inputs that cannot be read from the middle, kept while a job reads them."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.home import Home


@contextmanager
def temporary_spool(home: Home, task: str) -> Iterator[Path]:
    """A folder for such copies, made by whoever writes the first one, gone when the block ends."""
    folder = home.staging(task) / f"inputs-{os.getpid()}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
