"""MLflow's server on one machine: its command line, its settings and, where wanted, its logins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "admin"
AUTH_FILE = "basic_auth.ini"
# Fetching a model is hundreds of requests, and checking a password is slow by design. There is one
# worker, which forgets a password at once that is changed through it.
_LOGIN_CACHE_S = 60


@dataclass(frozen=True)
class Stores:
    """Addresses, without passwords: runs and models, accounts, and the folder of all artefacts."""

    metadata: str
    accounts: str
    artifacts: str

    @classmethod
    def in_home(cls, home: Path) -> Stores:
        """SQLite and a folder of the home."""
        return cls(
            metadata=f"sqlite:///{home / 'mlflow.db'}",
            accounts=f"sqlite:///{home / 'mlflow' / 'accounts.db'}",
            artifacts=str(home / "mlartifacts"),
        )


def server_arguments(stores: Stores, *, host: str, port: int, logins: bool) -> list[str]:
    """What follows `mlflow server`: clients reach artefacts through the server only.

    With `logins` every request needs an account, see `login_environment`.
    """
    options = {
        "--backend-store-uri": stores.metadata,
        "--artifacts-destination": stores.artifacts,
        "--host": host,
        "--port": str(port),
        "--workers": "1",
    }
    if logins:
        options["--app-name"] = "basic-auth"
    return [word for option in options.items() for word in option]


def server_environment() -> dict[str, str]:
    """Environment variables of every MLflow server of ours."""
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Seven processes for evaluations by language models, of which there are none here.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def login_environment(
    folder: Path, stores: Stores, *, admin_password: str, secret_key: str
) -> dict[str, str]:
    """Writes the settings of the logins into `folder` and answers the variables that go with them.

    Whoever has an account may read all of it; to change anything needs a grant of its own. No
    secret is in the file. The admin's password counts at the first start on an empty store only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / AUTH_FILE
    accounts = stores.accounts.replace("%", "%%")  # of a file in which % begins a reference
    path.write_text(
        "[mlflow]\n"
        "default_permission = READ\n"
        f"database_uri = {accounts}\n"
        f"admin_username = {ADMIN}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        f"auth_cache_ttl_seconds = {_LOGIN_CACHE_S}\n"
    )
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(path),
        "MLFLOW_AUTH_ADMIN_PASSWORD": admin_password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secret_key,
    }
