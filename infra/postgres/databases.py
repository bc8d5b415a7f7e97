"""The PostgreSQL server that keeps Airflow's and MLflow's metadata, and its three databases."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

AIRFLOW, MLFLOW, ACCOUNTS = "airflow", "mlflow", "mlflow_accounts"
_CONNECT_TIMEOUT_S = 10


class DatabaseError(Exception):
    """The server's address is none, or a database does not answer."""


@dataclass(frozen=True)
class DatabaseServer:
    """Where the server is and as whom it is used.

    The password is in no address: processes get it as `PGPASSWORD`, so that it stands on no command
    line, in no settings file and in no driver's error message.
    """

    host: str
    port: int
    user: str
    password: str

    @classmethod
    def parse(cls, text: str) -> DatabaseServer:
        """The server of `postgresql://user:password@host:port`.

        Raises:
            DatabaseError: the address is of another form; the message does not repeat it.
        """
        expected = "expected postgresql://user:password@host:port, characters such as @ in percent"
        try:
            parts = urlsplit(text)
            port = parts.port or 5432
        except ValueError:
            raise DatabaseError(f"the database's address is none: {expected}") from None
        if not parts.scheme.startswith("postgresql") or not (parts.hostname and parts.username):
            raise DatabaseError(f"the database's address has no scheme, host or user: {expected}")
        if parts.path.strip("/") or parts.query:
            raise DatabaseError(
                "the database's address names a database or has parameters: leave out the name, "
                f"the databases are {AIRFLOW}, {MLFLOW} and {ACCOUNTS}; give parameters as libpq's "
                "variables, such as PGSSLMODE"
            )
        user, password = unquote(parts.username), unquote(parts.password or "")
        return cls(parts.hostname, port, user, password)

    def address(self, database: str) -> str:
        """SQLAlchemy's address of a database, without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql+psycopg2://{quote(self.user, safe='')}@{host}:{self.port}/{database}"

    @property
    def environment(self) -> dict[str, str]:
        """What processes that use the server need in their environment."""
        return {"PGPASSWORD": self.password} if self.password else {}

    def check(self) -> None:
        """Nothing where all three databases answer.

        Raises:
            DatabaseError: one does not; the message says which, and the server's reason.
        """
        import psycopg2  # type: ignore[import-untyped]  # noqa: PLC0415 - SQLite needs it not

        for name in (AIRFLOW, MLFLOW, ACCOUNTS):
            try:
                psycopg2.connect(
                    host=self.host,
                    port=self.port,
                    user=self.user,
                    password=self.password or None,
                    dbname=name,
                    connect_timeout=_CONNECT_TIMEOUT_S,
                ).close()
            except psycopg2.OperationalError as error:
                reason = " ".join(str(error).split())
                raise DatabaseError(
                    f"database {name} does not answer: {reason}; infra/postgres/create.sql makes it"
                ) from None
