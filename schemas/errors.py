"""The errors Nightmill raises on purpose, named by what the runner must do about them.

A message says what failed, which one (id, shard, column, path), what was got and expected, and
what to do. It never contains a record's text.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

BUG_EXIT_CODE = 1


class NightmillError(Exception):
    """Base of all errors with a planned outcome; `exit_code` is what the process ends with."""

    exit_code: ClassVar[int] = BUG_EXIT_CODE
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        """The message without passwords, which an address within it may hold."""
        return mask_secrets(super().__str__())


class ConfigError(NightmillError):
    """Bad YAML, override or combination of settings: mend it, a retry cannot help."""

    exit_code = 2


class DataContractError(NightmillError):
    """The data set breaks its contract: tell its owner; a retry cannot help."""

    exit_code = 3


class DivergenceError(DataContractError):
    """A training loss is no number any more: another rate or other data; a retry cannot help."""


class ArtifactError(NightmillError):
    """A model, label set or tokenizer is missing, mismatched, or failed a gate."""

    exit_code = 4


class ShardError(NightmillError):
    """Some shards failed, the finished ones are kept: a retry does only what is left."""

    exit_code = 5
    retryable = True


class TransientError(NightmillError):
    """Network, preemption or throttling: retry with backoff."""

    exit_code = 75
    retryable = True


RETRYABLE_EXIT_CODES = frozenset(
    error.exit_code for error in (ShardError, TransientError) if error.retryable
)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suffix ` (did you mean 'x'?)` for a name close to a known one, else the empty string."""
    close = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
