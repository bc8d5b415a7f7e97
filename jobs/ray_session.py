"""Ray, started or joined, and stopped again."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray

from schemas.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ray Data needs CPUs that no actor holds, for reading and for its own tasks: with actors on every
# CPU it waits for ever. They are logical, so on one machine they cost nothing.
SPARE_CPUS = 2
ADDRESS_VARIABLE = "RAY_ADDRESS"

log = logging.getLogger(__name__)


@contextmanager
def ray_session(*, cpus: int) -> Iterator[None]:
    """A cluster of `cpus` worker CPUs: the one at `RAY_ADDRESS`, else a local one of our own.

    Raises:
        TransientError: the cluster does not answer.
    """
    address = os.environ.get(ADDRESS_VARIABLE)
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(
                # Without "local" Ray joins whatever cluster it finds in its temporary folder.
                address="local",
                num_cpus=cpus + SPARE_CPUS,
                include_dashboard=False,
                object_store_memory=256 << 20,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise TransientError(f"Ray at {address or 'local'} cannot be reached: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()
