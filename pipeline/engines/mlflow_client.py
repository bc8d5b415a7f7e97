"""MLflow's client, whose troubles are told in our errors: wait, mend the access, or not there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from requests import RequestException
from sqlalchemy.exc import OperationalError

from schemas.errors import ConfigError, NightmillError, TransientError
from schemas.masking import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_SHOWN_CHARS = 300
_MAX_CAUSES = 10
# What MLflow's stores answer for what they do not have; an alias has a code of its own.
_ABSENT = frozenset({"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE"})
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"})
_PASSING = frozenset(
    {
        "TEMPORARILY_UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "REQUEST_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "ABORTED",
        "CANCELLED",
        # A server's own trouble, as where its database is away.
        "INTERNAL_ERROR",
    }
)


class ReachedClient:
    """An `MlflowClient` whose calls raise our errors where MLflow is out of reach.

    What MLflow answers (that something is not there, or cannot be so) stays an `MlflowException`.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        with reaching(uri):
            self._client = MlflowClient(uri, registry_uri=uri)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def reach(*arguments: Any, **named: Any) -> Any:
            with reaching(self._uri):
                return call(*arguments, **named)

        return reach


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Tells MLflow's troubles by what is to be done about them.

    Raises:
        TransientError: MLflow or its database does not answer.
        ConfigError: MLflow refuses these credentials.
    """
    try:
        yield
    except (MlflowException, RequestException, OperationalError) as error:
        told = trouble_of(error, uri)
        if told is None:
            raise
        raise told from error


def alias_version(client: Any, name: str, alias: str) -> str | None:
    """The version that an alias of a model means, None where there is no such model or alias."""
    try:
        return str(client.get_model_version_by_alias(name, alias).version)
    except MlflowException as error:
        if not is_absent(error):
            raise
        return None


def is_absent(error: MlflowException) -> bool:
    """Whether MLflow answered that something is not there."""
    return error.error_code in _ABSENT


def trouble_of(error: Exception, uri: str) -> NightmillError | None:
    """What keeps MLflow from an answer, as an error of ours; None where it did answer."""
    code = getattr(error, "error_code", None)
    where = f"MLflow at {mask_secrets(uri)}"
    what = mask_secrets(str(error))[:_MAX_SHOWN_CHARS]
    if code in _REFUSED:
        return ConfigError(
            f"{where} refuses these credentials: {what}; set MLFLOW_TRACKING_USERNAME and "
            f"MLFLOW_TRACKING_PASSWORD of an account that may do this"
        )
    # A request that failed has the code INTERNAL_ERROR, too, which a SQLite file never has.
    is_remote = not uri.startswith("sqlite:")
    if (code in _PASSING and (is_remote or code != "INTERNAL_ERROR")) or _is_connection(error):
        return TransientError(f"{where} cannot be reached: {what}; run again later")
    return None


def _is_connection(error: BaseException | None) -> bool:
    """Whether an exception, or one behind it, is of the network or of opening a database."""
    if isinstance(error, OperationalError):
        return True
    for _ in range(_MAX_CAUSES):
        if error is None or isinstance(error, RequestException):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, RequestException)
