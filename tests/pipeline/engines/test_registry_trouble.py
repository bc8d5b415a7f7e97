"""MLflow's troubles by what is to be done about them: wait, mend the access, or not there."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from requests import ConnectionError as NoConnection
from sqlalchemy.exc import OperationalError

from pipeline.engines.bundle_cache import BundleCache
from pipeline.engines.champion_tokenizer import champion_tokenizer
from pipeline.engines.mlflow_client import is_absent, reaching, trouble_of
from pipeline.engines.registry import Registry
from schemas.errors import ConfigError, TransientError
from schemas.load import load_task

if TYPE_CHECKING:
    from schemas.home import Home

SERVER, FILE = "http://ann:s3cr3t-word@models.example:5000", "sqlite:///mlflow.db"


@pytest.fixture
def home_of_a_server_that_is_away(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return home


def test_a_server_that_is_away_is_passing_trouble(home_of_a_server_that_is_away: Home) -> None:
    with pytest.raises(TransientError, match=r"MLflow at http://127.0.0.1:\d+ cannot be reached"):
        Registry(home_of_a_server_that_is_away)


def test_a_night_before_the_first_model_does_without_a_registry_that_is_away(
    home_of_a_server_that_is_away: Home,
) -> None:
    home = home_of_a_server_that_is_away
    assert champion_tokenizer(load_task("tickets", home), home) is None


@pytest.mark.parametrize(
    ("code", "uri", "kind"),
    [
        (codes.TEMPORARILY_UNAVAILABLE, FILE, TransientError),  # a locked file
        (codes.REQUEST_LIMIT_EXCEEDED, SERVER, TransientError),
        (codes.INTERNAL_ERROR, SERVER, TransientError),
        (codes.INTERNAL_ERROR, FILE, None),
        (codes.PERMISSION_DENIED, SERVER, ConfigError),
        (codes.UNAUTHENTICATED, SERVER, ConfigError),
        (codes.RESOURCE_DOES_NOT_EXIST, SERVER, None),
        (codes.RESOURCE_ALREADY_EXISTS, FILE, None),
        (codes.INVALID_PARAMETER_VALUE, FILE, None),
    ],
)
def test_codes_are_told_apart(code: int, uri: str, kind: type[Exception] | None) -> None:
    error = MlflowException("what MLflow says", error_code=code)
    told = trouble_of(error, uri)
    assert type(told) is (kind or type(None))
    assert is_absent(error) == (
        code in (codes.RESOURCE_DOES_NOT_EXIST, codes.INVALID_PARAMETER_VALUE)
    )


def test_a_message_names_the_server_and_never_its_password() -> None:
    with (
        pytest.raises(TransientError, match=r"MLflow at http://ann:\*\*\*@models\.example") as told,
        reaching(SERVER),
    ):
        raise NoConnection(f"no route to {SERVER}")
    assert "s3cr3t-word" not in str(told.value)


def test_what_lies_behind_an_answer_is_looked_at_for_the_network_only() -> None:
    """A unique name that is taken comes from a database error, and is an answer all the same."""

    def wrapped(cause: Exception, code: int) -> MlflowException:
        try:
            raise cause
        except type(cause):
            try:
                raise MlflowException("wrapped", error_code=code)
            except MlflowException as error:
                return error

    database = OperationalError("insert", {}, Exception("taken"))
    assert trouble_of(wrapped(database, codes.RESOURCE_ALREADY_EXISTS), FILE) is None
    network = NoConnection("reset")
    assert isinstance(
        trouble_of(wrapped(network, codes.BAD_REQUEST), "http://host"), TransientError
    )
    assert isinstance(trouble_of(database, "postgresql://host/db"), TransientError)


def test_what_mlflow_answers_stays_its_own() -> None:
    with pytest.raises(MlflowException, match="no such alias"), reaching(FILE):
        raise MlflowException("no such alias", error_code=codes.INVALID_PARAMETER_VALUE)


def test_what_was_never_resolved_is_not_known_offline(home: Home) -> None:
    assert BundleCache(home).last_known("models:/tiny@champion") is None
