"""How a job over several dates ends when some of them failed."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from schemas.errors import NightmillError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)


class Failures:
    """Our own errors of single dates, kept until the other dates are done."""

    def __init__(self) -> None:
        self._errors: list[NightmillError] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Ends the block at an error of ours and remembers it."""
        try:
            yield
        except NightmillError as error:
            self._errors.append(error)

    def raise_outcome(self) -> None:
        """Ends the job with one failure and logs the others; does nothing where there is none.

        Raises:
            NightmillError: the first one that a retry can finish, else the first.
        """
        if not self._errors:
            return
        # What a retry can finish is the job's outcome: it will meet the others again.
        outcome = next((error for error in self._errors if error.retryable), self._errors[0])
        for other in self._errors:
            if other is not outcome:
                log.error("%s: %s", type(other).__name__, other)
        raise outcome
