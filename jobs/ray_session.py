"""Ray, started or joined, and stopped again."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray.exceptions import AuthenticationError

from schemas.errors import ArtifactError, ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ray Data needs CPUs that no actor holds, for reading and for its own tasks: with actors on every
# CPU it waits for ever. They are logical, so on one machine they cost nothing.
SPARE_CPUS = 2
ADDRESS_VARIABLE = "RAY_ADDRESS"
LOCAL = "local"

log = logging.getLogger(__name__)


def ray_address(configured: str | None = None) -> str:
    """Where Ray is: as configured, else by `RAY_ADDRESS`, else `local`, a session of our own.

    Raises:
        ConfigError: the address is of a kind that a job cannot join.
    """
    address = configured or os.environ.get(ADDRESS_VARIABLE) or LOCAL
    if "://" in address:
        raise ConfigError(
            f"Ray address {address!r}: expected host:port of the cluster, auto or local; a job "
            f"runs on a node of the cluster, `ray job submit` starts it there from outside"
        )
    return address


@contextmanager
def ray_session(*, cpus: int, address: str | None = None) -> Iterator[None]:
    """The cluster at `address` (see `ray_address`), or a local one of `cpus` worker CPUs.

    Raises:
        ConfigError: the address cannot be joined, or the cluster asks for a token.
        ArtifactError: the cluster has another version of Ray or Python.
        TransientError: the cluster does not answer.
    """
    where = ray_address(address)
    try:
        if where == LOCAL:
            _start(cpus)
        else:
            ray.init(address=where, log_to_driver=False, logging_level="ERROR")
    except AuthenticationError as error:
        raise ConfigError(
            f"Ray at {where} asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or "
            f"RAY_AUTH_TOKEN_PATH"
        ) from error
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        if "Version mismatch" in str(error):  # a plain RuntimeError, told only by its text
            raise ArtifactError(
                f"Ray at {where} runs other software than this job; install the same on both: "
                f"{error}"
            ) from error
        raise TransientError(f"Ray at {where} cannot be reached: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _start(cpus: int) -> None:
    try:
        ray.init(
            # Without "local" Ray joins whatever cluster it finds in its temporary folder.
            address=LOCAL,
            num_cpus=cpus + SPARE_CPUS,
            include_dashboard=False,
            object_store_memory=256 << 20,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:
        # Ray has 30 s to start, which a busy machine may exceed; it says so with no class of its
        # own.
        if type(error) is not Exception:
            raise
        ray.shutdown()
        raise TransientError(
            f"Ray did not start on this machine, which may be too busy: {error}"
        ) from error
