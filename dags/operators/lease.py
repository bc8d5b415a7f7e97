"""The sign that somebody still waits for a job: a file that changes as long as somebody does."""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_RENEWALS_PER_LEASE = 6  # a shared folder may show a file up to a minute late
log = logging.getLogger(__name__)


class Lease:
    """A job's lease as its owner sees it; the job itself ends when the file stays as it is.

    Whoever takes it last owns it: the owner before then neither renews it nor stops the job.
    """

    def __init__(self, file: Path, *, owner: str, lease_s: float) -> None:
        self.file = file
        self.owner = owner
        self.lease_s = lease_s
        self._written_at = float("-inf")

    def take(self) -> None:
        """Makes it this owner's."""
        self._write(ended=False)

    def renew(self) -> None:
        """Changes the file when it is time to; trouble with it is a warning only."""
        now = time.monotonic()
        if now - self._written_at < self.lease_s / _RENEWALS_PER_LEASE or not self.is_own():
            return
        try:
            self._write(ended=False)
        except OSError as error:
            log.warning("lease %s cannot be renewed: %s", self.file, error)

    def end(self) -> None:
        """Says that the job is to be stopped and not to be joined."""
        self._write(ended=True)

    def is_own(self) -> bool:
        """Whether nobody has taken it since."""
        return self._read().get("owner") == self.owner

    def is_ended(self) -> bool:
        """Whether the job was told to stop."""
        return self._read().get("ended") is True

    def _write(self, *, ended: bool) -> None:
        content = {"owner": self.owner, "ended": ended, "renewed_ns": time.time_ns()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # Several machines may write at once, and their processes may have the same number.
        temporary = self.file.with_name(f".{self.file.name}.{uuid.uuid4().hex}")
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(self.file)
        self._written_at = time.monotonic()

    def _read(self) -> dict[str, object]:
        try:
            content = json.loads(self.file.read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
