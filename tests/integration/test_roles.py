"""Who may log in where, and how a database's password reaches the servers, without any server."""

from __future__ import annotations

import configparser
import importlib
import sys
from pathlib import Path

import pytest

INFRA = Path(__file__).resolve().parents[2] / "infra"
MODULES = (
    "accounts", "databases", "local_servers", "logins", "processes", "settings", "tracking_server",
)  # fmt: skip


@pytest.fixture
def infra(monkeypatch):
    """Modules of `infra/` by name; it is no package, and leaves nothing behind."""
    for folder in ("postgres", "mlflow", "airflow", ""):
        monkeypatch.syspath_prepend(INFRA / folder)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def test_users_are_names_with_roles(infra):
    parse = infra("local_servers").parse_users
    assert parse("ann:viewer, ben.m:op,") == {"ann": "viewer", "ben.m": "op"}
    assert parse("") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ann", "user 'ann': expected NAME:ROLE with a role of viewer, user, op, admin"),
        ("ann:boss", "user 'ann:boss': expected NAME:ROLE"),
        ("an,n:op", "user 'an': expected NAME:ROLE"),
        ("admin:viewer", "user 'admin' is there already"),
        ("nightmill:op", "user 'nightmill' is there already"),
        ("ann:op,ann:viewer", "user 'ann' is there already"),
    ],
)
def test_users_that_cannot_be_are_refused(infra, text, problem):
    with pytest.raises(ValueError, match=problem):
        infra("local_servers").parse_users(text)


def test_a_database_address_is_taken_apart(infra):
    server = infra("databases").DatabaseServer.parse("postgresql://night%40mill:p%2Fw%25@db:6432")
    assert server.address("mlflow") == "postgresql+psycopg2://night%40mill@db:6432/mlflow"
    assert server.environment == {"PGPASSWORD": "p/w%"}
    without = infra("databases").DatabaseServer.parse("postgresql://nightmill@[::1]/")
    assert without.address("airflow") == "postgresql+psycopg2://nightmill@[::1]:5432/airflow"
    assert without.environment == {}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://u:hidden-word@db/mlflow", "leave out the name"),
        ("postgresql://u:hidden-word@db?sslmode=require", "such as PGSSLMODE"),
        ("postgresql://u:hidden-word@db:port", "expected postgresql://user:password@host:port"),
        ("mysql://u:hidden-word@db", "has no scheme, host or user"),
        ("postgresql://:hidden-word@db", "has no scheme, host or user"),
    ],
)
def test_a_database_address_of_another_form_is_refused_in_silence(infra, address, problem):
    databases = infra("databases")
    with pytest.raises(databases.DatabaseError, match=problem) as caught:
        databases.DatabaseServer.parse(address)
    assert "hidden-word" not in str(caught.value)


def test_passwords_are_made_once_and_are_their_owners_alone(infra, tmp_path):
    passwords_in = infra("logins").passwords_in
    path = tmp_path / "new" / "passwords.json"
    first = passwords_in(path, ["ann", "ben"])
    assert passwords_in(path, ["ben", "cleo"])["ben"] == first["ben"]
    assert sorted(passwords_in(path, [])) == ["ann", "ben", "cleo"]
    assert len(set(passwords_in(path, []).values())) == 3
    assert all(len(word) >= 12 for word in first.values())  # which MLflow asks for
    assert path.stat().st_mode & 0o777 == 0o600


def test_mlflow_with_logins_lets_read_and_keeps_no_secret_in_its_file(infra, tmp_path):
    server = infra("tracking_server")
    address = "postgresql+psycopg2://night%40mill@db:5432/"
    stores = server.Stores(f"{address}mlflow", f"{address}mlflow_accounts", str(tmp_path))
    words = {"admin_password": "of-the-admin", "secret_key": "of-the-forms"}
    variables = server.login_environment(tmp_path, stores, **words)
    text = Path(variables["MLFLOW_AUTH_CONFIG_PATH"]).read_text()
    settings = configparser.ConfigParser()
    settings.read_string(text)
    assert settings["mlflow"]["default_permission"] == "READ"
    assert settings["mlflow"]["database_uri"] == stores.accounts
    assert "of-the" not in text
    assert variables["MLFLOW_AUTH_ADMIN_PASSWORD"] == words["admin_password"]
    arguments = server.server_arguments(stores, host="127.0.0.1", port=5000, logins=True)
    assert arguments[-2:] == ["--app-name", "basic-auth"]


def test_airflow_without_more_is_on_sqlite_with_one_admin(infra, tmp_path):
    environment = infra("settings").airflow_environment
    alone = environment(tmp_path, repository=INFRA.parent)
    assert alone["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin"
    sqlite = f"sqlite:///{tmp_path / 'airflow' / 'airflow.db'}"
    assert alone["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == sqlite
    more = environment(
        tmp_path, repository=INFRA.parent, database="postgresql://x", users={"ann": "op"}
    )
    assert more["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin,ann:op"
    assert more["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "postgresql://x"


def test_jobs_log_in_at_mlflow_where_people_do(infra, tmp_path):
    local = infra("local_servers").LocalServers
    alone = local(tmp_path, repository=INFRA.parent)
    assert alone._service_login() == {}
    login = local(tmp_path, repository=INFRA.parent, users={"ann": "op"})._service_login()
    assert login["MLFLOW_TRACKING_USERNAME"] == "nightmill"
    assert len(login["MLFLOW_TRACKING_PASSWORD"]) >= 12
