"""Where the Ray cluster is that gets the jobs, and how its address is shown without its secrets."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from typing import Self

ADDRESS_VARIABLE = "NIGHTMILL_RAY_ADDRESS"
LOCAL = "local"
CONNECTION = "connection:"
DEFAULT_PORT = 8265  # of Ray's dashboard, which serves the job API
_CREDENTIALS = re.compile(r"(?<=://)[^/]*@")


@dataclass(frozen=True, slots=True)
class RayAddress:
    """A cluster's job API: `http://head:8265`, and the token it asks for.

    `reference` is what may be stored where others can read it: it leads to the same address.
    """

    url: str = field(repr=False)
    reference: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of_url(cls, url: str) -> Self:
        """The address that a URL names.

        Raises:
            AirflowFailException: it is no URL of a job API.
        """
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise AirflowFailException(
                f"Ray address {masked(url)!r}: expected http://HEAD:8265, {LOCAL}, or "
                f"{CONNECTION}ID of an Airflow connection; mend {ADDRESS_VARIABLE} or ray_address"
            )
        return cls(url=url.rstrip("/"), reference=url.rstrip("/"))

    @classmethod
    def of_connection(cls, connection: Any) -> Self:
        """The address of an Airflow connection; a password without a login is Ray's token."""
        host, port = connection.host or "", connection.port or DEFAULT_PORT
        scheme = connection.schema or "http"
        if "://" in host:
            scheme, _, host = host.partition("://")
        login, password = connection.login, connection.password
        user = f"{quote(login, safe='')}:{quote(password or '', safe='')}@" if login else ""
        return cls(
            url=cls.of_url(f"{scheme}://{user}{host}:{port}").url,
            reference=f"{CONNECTION}{connection.conn_id}",
            token=None if login else password,
        )

    @property
    def public(self) -> str:
        """The address without user and password, for messages."""
        return masked(self.url)

    @property
    def headers(self) -> dict[str, str]:
        """What goes with each request; empty leaves it to Ray's own `RAY_AUTH_...` variables."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def for_trigger(self) -> str:
        """What the triggerer finds the cluster by; Airflow's pages show it to every viewer.

        Raises:
            AirflowFailException: it has a password in it.
        """
        if _CREDENTIALS.search(self.reference):
            raise AirflowFailException(
                f"Ray address {self.public}: a deferred task shows it to everybody, and it has a "
                f"password in it; put it into an Airflow connection, and {CONNECTION}ID here"
            )
        return self.reference


def masked(url: str) -> str:
    """A URL without user and password."""
    return _CREDENTIALS.sub("***@", url)


def _configured(address: str | None) -> str:
    return address or os.environ.get(ADDRESS_VARIABLE) or LOCAL


def find_address(address: str | None) -> RayAddress | None:
    """The cluster by `address`, else by `NIGHTMILL_RAY_ADDRESS`; None: jobs run on this machine.

    Raises:
        AirflowFailException: the address is of a kind that takes no jobs.
        AirflowNotFoundException: there is no such connection.
    """
    where = _configured(address)
    if where == LOCAL:
        return None
    if where.startswith(CONNECTION):
        connection = BaseHook.get_connection(where.removeprefix(CONNECTION))
        return RayAddress.of_connection(connection)
    return RayAddress.of_url(where)


async def find_again(reference: str) -> RayAddress:
    """The cluster that `RayAddress.for_trigger` named; for the triggerer's event loop."""
    if reference.startswith(CONNECTION):
        connection = await BaseHook.aget_connection(reference.removeprefix(CONNECTION))
        return RayAddress.of_connection(connection)
    return RayAddress.of_url(reference)
