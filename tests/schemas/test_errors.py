"""Errors are named by what the runner must do: the exit code says it."""

from __future__ import annotations

import pytest

from schemas.errors import (
    RETRYABLE_EXIT_CODES,
    ArtifactError,
    ConfigError,
    DataContractError,
    NightmillError,
    ShardError,
    TransientError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "exit_code", "retryable"),
    [
        (NightmillError, 1, False),
        (ConfigError, 2, False),
        (DataContractError, 3, False),
        (ArtifactError, 4, False),
        (ShardError, 5, True),
        (TransientError, 75, True),
    ],
)
def test_exit_codes(error: type[NightmillError], exit_code: int, retryable: bool) -> None:
    assert error.exit_code == exit_code
    assert error.retryable == retryable
    assert (exit_code in RETRYABLE_EXIT_CODES) == retryable


def test_only_shards_and_passing_trouble_are_retried() -> None:
    """FAILURES row 15: an error of data or configuration is never retried."""
    assert sorted(RETRYABLE_EXIT_CODES) == [5, 75]


def test_did_you_mean_is_silent_when_nothing_is_near() -> None:
    assert did_you_mean("queu", ["priority", "queue"]) == " (did you mean 'queue'?)"
    assert did_you_mean("zzz", ["priority", "queue"]) == ""
