from __future__ import annotations

import asyncio

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException

from dags.operators.ray_address import RayAddress, find_address, find_again, masked

TOKEN = "t0ken"  # noqa: S105 - of a test
WITH_PASSWORD = "http://anna:s3cret@head:8265"  # noqa: S105 - of a test


@pytest.fixture
def no_variable(monkeypatch):
    monkeypatch.delenv("NIGHTMILL_RAY_ADDRESS", raising=False)


@pytest.fixture
def connection(monkeypatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_NIGHTMILL_RAY",
        '{"conn_type": "http", "host": "ray-head", "schema": "https", "password": "t0ken"}',
    )


def test_without_an_address_jobs_run_here(no_variable):
    assert find_address(None) is None


def test_argument_wins_over_the_variable(monkeypatch):
    monkeypatch.setenv("NIGHTMILL_RAY_ADDRESS", "http://head:8265/")
    assert find_address(None).url == "http://head:8265"
    assert find_address("http://other:8265").url == "http://other:8265"
    assert find_address("local") is None


def test_connection_gives_address_and_token(no_variable, connection):
    found = find_address("connection:nightmill_ray")
    assert found.url == "https://ray-head:8265"
    assert found.headers == {"Authorization": "Bearer t0ken"}
    assert found.for_trigger() == "connection:nightmill_ray"


def test_connection_with_a_login_puts_it_into_the_address(no_variable, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_R", "http://anna:p%2Fw@head:9000")
    found = find_address("connection:r")
    assert found.url == "http://anna:p%2Fw@head:9000"
    assert found.headers == {}
    assert found.public == "http://***@head:9000"
    assert found.for_trigger() == "connection:r"


def test_triggerer_finds_the_same_cluster(no_variable, monkeypatch):
    # In a test's process Airflow asks its database for connections in a way that has no loop.
    made = {}

    async def aget(conn_id):
        made["id"] = conn_id
        return Connection(conn_id=conn_id, conn_type="http", host="head", password=TOKEN)

    monkeypatch.setattr("dags.operators.ray_address.BaseHook.aget_connection", aget)
    found = asyncio.run(find_again("connection:nightmill_ray"))
    assert (found.url, found.token, made["id"]) == ("http://head:8265", "t0ken", "nightmill_ray")
    assert asyncio.run(find_again("http://head:8265")).url == "http://head:8265"


@pytest.mark.parametrize(
    "address", ["head:6379", "ray://head:10001", "auto", "http://", "anna:s3cret@head"]
)
def test_address_of_another_kind_is_refused(no_variable, address):
    with pytest.raises(AirflowFailException, match="expected http://HEAD:8265, local, or"):
        find_address(address)


def test_secrets_show_nowhere():
    found = RayAddress.of_url(WITH_PASSWORD)
    assert found.public == masked(WITH_PASSWORD) == "http://***@head:8265"
    with pytest.raises(AirflowFailException, match="put it into an Airflow connection") as error:
        found.for_trigger()
    tokened = RayAddress("http://head", reference="connection:x", token=TOKEN)
    assert "s3cret" not in str(error.value)
    assert "t0ken" not in repr(tokened)


def test_password_with_the_signs_of_an_address_is_masked_whole():
    assert masked("https://a:b:c@c@d:1/x@y") == "https://***@d:1/x@y"
