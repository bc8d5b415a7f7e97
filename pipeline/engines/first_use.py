"""The first use of a tracking store makes its tables: one process at a time, whoever is first."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import NullPool

from pipeline.engines.file_lock import exclusive
from schemas.errors import ConfigError, TransientError
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

_LOCK = int.from_bytes(b"nightmil")  # any number, as long as no other program takes it
_CONNECT_TIMEOUT_S = 30
# PostgreSQL's words: its driver gives a refused connection no code.
_REFUSALS = re.compile(r"authentication failed|does not exist|pg_hba\.conf|permission denied")


@contextmanager
def alone_at(uri: str, *, lock: Path) -> Iterator[None]:
    """Nobody else is inside such a block with the same store.

    On this machine a locked file sees to it; on PostgreSQL, which processes of many machines and
    homes may meet for the first time at once, an advisory lock that ends with its transaction. A
    server of MLflow makes the tables before it answers, and needs neither.

    Raises:
        ConfigError: the address is none, its driver is missing, or the database refuses us.
        TransientError: the database does not answer.
    """
    with ExitStack() as held:
        held.enter_context(exclusive(lock))
        if uri.startswith("postgresql"):
            engine = _engine(uri)
            held.callback(engine.dispose)
            connection = held.enter_context(_connected(engine, uri))
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield


def _engine(uri: str) -> Engine:
    try:
        return create_engine(
            uri, poolclass=NullPool, connect_args={"connect_timeout": _CONNECT_TIMEOUT_S}
        )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"tracking database {mask_secrets(uri)}: {type(error).__name__}; write "
            "postgresql+psycopg2://USER@HOST:PORT/NAME and install nightmill[production]"
        ) from None


def _connected(engine: Engine, uri: str) -> Connection:
    try:
        return engine.connect()
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())
        where = f"tracking database {mask_secrets(uri)}: {mask_secrets(reason)}"
        if _REFUSALS.search(reason):
            raise ConfigError(f"{where}; correct the address or the password") from None
        raise TransientError(f"{where}; run again later") from None
